"""Works cited by guarantees, algorithms and docs, and a parser that finds them in text.

Five documents are cited by a key in square brackets, other works by authors and year, proofs of
dpfit by their page.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dpfit.privacy.spec import Json


@dataclass(frozen=True)
class Reference:
    """A work with full author names; ``key`` is its citation, ``year`` None if undated."""

    key: str
    authors: tuple[str, ...]
    title: str
    venue: str
    year: int | None

    def __str__(self) -> str:
        """Return one line: key of a document, authors, title, venue, year."""
        parts = (
            ", ".join(self.authors),
            self.title,
            self.venue,
            str(self.year) if self.year else "",
        )
        label = f"[{self.key}] " if self.key in DOCUMENTS else ""
        return label + ". ".join(part for part in parts if part)

    def to_json(self) -> dict[str, Json]:
        """Return the fields as plain values."""
        return {
            "key": self.key,
            "authors": list(self.authors),
            "title": self.title,
            "venue": self.venue,
            "year": self.year,
        }


class Citation(NamedTuple):
    """A citation as a text has it, and the work, or None if the bibliography lacks it."""

    text: str
    reference: Reference | None


def resolve(text: str) -> list[Reference]:
    """Return the works that a theorem or reference cites, each once, in the order of the text.

    >>> [each.key for each in resolve("[LD] Lemma C.1; Abadi et al. (2016)")]
    ['LD', 'Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang (2016)']
    >>> resolve("group privacy")
    []
    """
    return list(
        dict.fromkeys(found.reference for found in citations(text) if found.reference is not None)
    )


def citations(text: str) -> list[Citation]:
    """Return a text's citations.

    Their forms are "[KEY]", "[KEY, number; ...]", "Name and Name (year)" and "docs/page.md".

    >>> citations("[Gan22, Fact 15]; Nobody (2001)")[1]
    Citation(text='Nobody (2001)', reference=None)
    """
    flat = _ascii(" ".join(text.split()))
    found = [
        (each.start(1), Citation(each[1], _BY_KEY.get(each[1]))) for each in _KEYED.finditer(flat)
    ]
    found += [(each.start(), Citation(each[0], _dated(each))) for each in _DATED.finditer(flat)]
    found += [
        (each.start(), Citation(each[0], _BY_KEY.get(each[0]))) for each in _PAGE.finditer(flat)
    ]
    return [citation for _, citation in sorted(found, key=lambda each: each[0])]


def bibliography() -> list[Reference]:
    """Return all works: the documents, then works by authors and year, then pages of dpfit."""
    return [*DOCUMENTS.values(), *sorted(WORKS, key=lambda each: each.key), *PAGES]


def _ascii(text: str) -> str:
    """Return the text without accents, so that "Peche" finds its work."""
    return "".join(
        each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each)
    )


def _surname(author: str) -> str:
    return _ascii(author).split()[-1]


def _dated(found: re.Match[str]) -> Reference | None:
    """Return the work of that year whose surnames end the list of names."""
    names = tuple(re.split(r",? and |, ", found["names"]))
    for work in WORKS:
        surnames = tuple(map(_surname, work.authors))
        cited = (
            names[-1:] == surnames[:1] if found["others"] else names[-len(surnames) :] == surnames
        )
        if cited and work.year == int(found["year"]):
            return work
    return None


_NAME = r"[A-Z][A-Za-z'-]+"
_DATED = re.compile(
    rf"(?P<names>{_NAME}(?:(?:,? and |, ){_NAME})*)(?P<others> et al\.)?,? "
    r"\(?(?P<year>1[89]\d\d|20\d\d)\b\)?"
)
# Inside brackets, at their start or after a semicolon: one word with at least two capitals or
# digits.
_KEYED = re.compile(r"(?:\[|(?<=; ))(?=[^\[]*\])([A-Z][a-z]*[A-Z0-9][A-Za-z0-9]*)(?=[\],;])")
_PAGE = re.compile(r"\bdocs/[\w/-]+\.md")


def _work(authors: str, title: str, venue: str, year: int) -> Reference:
    names = tuple(authors.split(", "))
    *first, last = map(_surname, names)
    who = f"{', '.join(first)} and {last}" if first else last
    return Reference(f"{who} ({year})", names, title, venue, year)


def _page(path: str, title: str) -> Reference:
    return Reference(path, (), title, f"dpfit, {path}", None)


DOCUMENTS = {
    each.key: each
    for each in (
        Reference(
            "Gan22",
            ("Arun Ganesh",),
            "Improved Algorithms and Upper Bounds in Differential Privacy",
            "PhD thesis, University of California, Berkeley, Technical Report UCB/EECS-2022-53",
            2022,
        ),
        Reference(
            "Liu24",
            ("Daogao Liu",),
            "Advancing Differentially Private Optimization: Efficiency, Utility, and Applications",
            "PhD thesis, University of Washington",
            2024,
        ),
        Reference(
            "LD",
            ("Anonymous authors",),
            "On the Universality of Langevin Diffusion for Private Euclidean (Convex) Optimization",
            "Paper under double-blind review",
            None,
        ),
        Reference(
            "GT20",
            ("Arun Ganesh", "Kunal Talwar"),
            "Faster Differentially Private Samplers via Rényi Divergence Analysis of Discretized "
            "Langevin MCMC",
            "NeurIPS",
            2020,
        ),
        Reference(
            "ASAP",
            ("Yingyu Lin", "Yi-An Ma", "Yu-Xiang Wang", "Rachel Redberg", "Zhiqi Bu"),
            "Tractable MCMC for Private Learning with Pure and Gaussian Differential Privacy",
            "ICLR",
            2024,
        ),
    )
}
"""The five documents whose results dpfit implements (`dpfit.theory.results`), by key."""

WORKS = (
    _work(
        "Martín Abadi, Andy Chu, Ian Goodfellow, H. Brendan McMahan, Ilya Mironov, Kunal Talwar, "
        "Li Zhang",
        "Deep Learning with Differential Privacy",
        "CCS",
        2016,
    ),
    _work(
        "Aleksandr Aravkin, Anju Kambadur, Aurélie Lozano, Ronny Luss",
        "Sparse Quantile Huber Regression for Efficient and Robust Estimation",
        "arXiv preprint",
        2014,
    ),
    _work(
        "Francis Bach",
        "Self-Concordant Analysis for Logistic Regression",
        "Electronic Journal of Statistics 4",
        2010,
    ),
    _work(
        "Borja Balle, Gilles Barthe, Marco Gaboardi",
        "Privacy Amplification by Subsampling: Tight Analyses via Couplings and Divergences",
        "NeurIPS",
        2018,
    ),
    _work(
        "Alvin J. Baranchik",
        "A Family of Minimax Estimators of the Mean of a Multivariate Normal Distribution",
        "Annals of Mathematical Statistics 41",
        1970,
    ),
    _work(
        "David Blackwell",
        "Equivalent Comparisons of Experiments",
        "Annals of Mathematical Statistics 24",
        1953,
    ),
    _work(
        "Jinho Bok, Weijie J. Su, Jason M. Altschuler",
        "Shifted Interpolation for Differential Privacy",
        "ICML",
        2024,
    ),
    _work(
        "Herm Jan Brascamp, Elliott H. Lieb",
        "On Extensions of the Brunn-Minkowski and Prékopa-Leindler Theorems, Including "
        "Inequalities for Log Concave "
        "Functions, and with an Application to the Diffusion Equation",
        "Journal of Functional Analysis 22",
        1976,
    ),
    _work(
        "Richard Brent, Colin Percival, Paul Zimmermann",
        "Error Bounds on Complex Floating-Point Multiplication",
        "Mathematics of Computation 76",
        2007,
    ),
    _work(
        "Clément L. Canonne, Gautam Kamath, Thomas Steinke",
        "The Discrete Gaussian for Differential Privacy",
        "NeurIPS",
        2020,
    ),
    _work(
        "Kamalika Chaudhuri, Claire Monteleoni, Anand D. Sarwate",
        "Differentially Private Empirical Risk Minimization",
        "Journal of Machine Learning Research 12",
        2011,
    ),
    _work(
        "Rishav Chourasia, Jiayuan Ye, Reza Shokri",
        "Differential Privacy Dynamics of Langevin Diffusion and Noisy Gradient Descent",
        "NeurIPS",
        2021,
    ),
    _work(
        "Charles J. Clopper, Egon S. Pearson",
        "The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial",
        "Biometrika 26",
        1934,
    ),
    _work(
        "Jinshuo Dong, David Durfee, Ryan Rogers",
        "Optimal Differential Privacy Composition for Exponential Mechanisms",
        "ICML",
        2020,
    ),
    _work(
        "Jinshuo Dong, Aaron Roth, Weijie J. Su",
        "Gaussian Differential Privacy",
        "Journal of the Royal Statistical Society, Series B 84",
        2022,
    ),
    _work(
        "Vadym Doroshenko, Badih Ghazi, Pritish Kamath, Ravi Kumar, Pasin Manurangsi",
        "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions",
        "Proceedings on Privacy Enhancing Technologies",
        2022,
    ),
    _work(
        "John Duchi, Shai Shalev-Shwartz, Yoram Singer, Tushar Chandra",
        "Efficient Projections onto the l1-Ball for Learning in High Dimensions",
        "ICML",
        2008,
    ),
    _work(
        "Cynthia Dwork, Aaron Roth",
        "The Algorithmic Foundations of Differential Privacy",
        "Foundations and Trends in Theoretical Computer Science 9",
        2014,
    ),
    _work(
        "Vitaly Feldman, Tomer Koren, Kunal Talwar",
        "Private Stochastic Convex Optimization: Optimal Rates in Linear Time",
        "STOC",
        2020,
    ),
    _work(
        "Vitaly Feldman, Tijana Zrnic",
        "Individual Privacy Accounting via a Rényi Filter",
        "NeurIPS",
        2021,
    ),
    _work(
        "Marcelo Fernandes, Emmanuel Guerre, Eduardo Horta",
        "Smoothing Quantile Regressions",
        "Journal of Business and Economic Statistics 39",
        2021,
    ),
    _work(
        "Peter J. Huber",
        "Robust Estimation of a Location Parameter",
        "Annals of Mathematical Statistics 35",
        1964,
    ),
    _work(
        "Herbert Robbins, Sutton Monro",
        "A Stochastic Approximation Method",
        "Annals of Mathematical Statistics 22",
        1951,
    ),
    _work(
        "Roger Iyengar, Joseph P. Near, Dawn Song, Om Thakkar, Abhradeep Thakurta, Lun Wang",
        "Towards Practical Differentially Private Convex Optimization",
        "IEEE Symposium on Security and Privacy",
        2019,
    ),
    _work(
        "Willard James, Charles Stein",
        "Estimation with Quadratic Loss",
        "Fourth Berkeley Symposium on Mathematical Statistics and Probability",
        1961,
    ),
    _work(
        "Peter Kairouz, Sewoong Oh, Pramod Viswanath",
        "The Composition Theorem for Differential Privacy",
        "ICML",
        2015,
    ),
    _work(
        "Olivier Ledoit, Sandrine Péché",
        "Eigenvectors of Some Large Sample Covariance Matrix Ensembles",
        "Probability Theory and Related Fields 151",
        2011,
    ),
    _work("Jingcheng Liu, Kunal Talwar", "Private Selection from Private Candidates", "STOC", 2019),
    _work(
        "László Lovász, Miklós Simonovits",
        "Random Walks in a Convex Body and an Improved Volume Algorithm",
        "Random Structures and Algorithms 4",
        1993,
    ),
    _work(
        "Min Lyu, Dong Su, Ninghui Li",
        "Understanding the Sparse Vector Technique for Differential Privacy",
        "Proceedings of the VLDB Endowment 10",
        2017,
    ),
    _work(
        "Saeed Mahloujifar, Luca Melis, Kamalika Chaudhuri",
        "Auditing f-Differential Privacy in One Run",
        "arXiv preprint",
        2024,
    ),
    _work(
        "Pascal Massart",
        "The Tight Constant in the Dvoretzky-Kiefer-Wolfowitz Inequality",
        "Annals of Probability 18",
        1990,
    ),
    _work(
        "Ilya Mironov",
        "On Significance of the Least Significant Bits for Differential Privacy",
        "CCS",
        2012,
    ),
    _work(
        "Ilya Mironov",
        "Rényi Differential Privacy",
        "IEEE Computer Security Foundations Symposium",
        2017,
    ),
    _work(
        "Ilya Mironov, Kunal Talwar, Li Zhang",
        "Rényi Differential Privacy of the Sampled Gaussian Mechanism",
        "arXiv:1908.10530",
        2019,
    ),
    _work(
        "Nicolas Papernot, Thomas Steinke",
        "Hyperparameter Tuning with Renyi Differential Privacy",
        "ICLR",
        2022,
    ),
    _work(
        "Iosif Pinelis",
        "Optimum Bounds for the Distributions of Martingales in Banach Spaces",
        "Annals of Probability 22",
        1994,
    ),
    _work(
        "Rachel Redberg, Antti Koskela, Yu-Xiang Wang",
        "Improving the Privacy and Practicality of Objective Perturbation for Differentially "
        "Private Linear Learners",
        "NeurIPS",
        2023,
    ),
    _work(
        "Ryan Rogers, Aaron Roth, Jonathan Ullman, Salil Vadhan",
        "Privacy Odometers and Filters: Pay-as-you-Go Composition",
        "NeurIPS",
        2016,
    ),
    _work(
        "Adam Smith, Abhradeep Thakurta",
        "Fully Adaptive Composition for Gaussian Differential Privacy",
        "arXiv preprint",
        2022,
    ),
    _work(
        "Thomas Steinke, Milad Nasr, Matthew Jagielski",
        "Privacy Auditing with One (1) Training Run",
        "NeurIPS",
        2023,
    ),
    _work(
        "Duy Vu, Aleksandra Slavković",
        "Differential Privacy for Clinical Trial Data: Preliminary Evaluations",
        "ICDM Workshops",
        2009,
    ),
    _work(
        "Yu-Xiang Wang",
        "Revisiting Differentially Private Linear Regression: Optimal and Adaptive Prediction "
        "and Estimation in "
        "Unbounded Domain",
        "UAI",
        2018,
    ),
    _work(
        "Larry Wasserman, Shuheng Zhou",
        "A Statistical Framework for Differential Privacy",
        "Journal of the American Statistical Association 105",
        2010,
    ),
    _work(
        "Justin Whitehouse, Aaditya Ramdas, Ryan Rogers, Zhiwei Steven Wu",
        "Fully-Adaptive Composition in Differential Privacy",
        "ICML",
        2023,
    ),
    _work(
        "Eugene P. Wigner",
        "Characteristic Vectors of Bordered Matrices with Infinite Dimensions",
        "Annals of Mathematics 62",
        1955,
    ),
    _work(
        "Yuqing Zhu, Jinshuo Dong, Yu-Xiang Wang",
        "Optimal Accounting of Differential Privacy via Characteristic Function",
        "AISTATS",
        2022,
    ),
    _work(
        "Salil Vadhan, Tianhao Wang",
        "Concurrent Composition of Differential Privacy",
        "TCC",
        2021,
    ),
    _work(
        "Stuart Geman, Donald E. McClure",
        "Statistical Methods for Tomographic Image Reconstruction",
        "Bulletin of the International Statistical Institute 52",
        1987,
    ),
    _work(
        "Diederik P. Kingma, Jimmy Ba",
        "Adam: A Method for Stochastic Optimization",
        "ICLR",
        2015,
    ),
    _work(
        "Qiaoyue Tang, Frederick Shpilevskiy, Mathias Lécuyer",
        "DP-AdamBC: Your DP-Adam Is Actually DP-SGD (Unless You Apply Bias Correction)",
        "AAAI",
        2024,
    ),
)
"""Works that are cited by authors and year."""

PAGES = (
    _page("docs/errata.md", "Errata: printed formulas that dpfit does not use"),
    _page("docs/explanation/accounting.md", "Accounting: every rule with its proof"),
    _page(
        "docs/explanation/certificates.md",
        "Certificates: what a sampler promises for every dataset",
    ),
    _page(
        "docs/explanation/chains.md",
        "Chains: what is run, what is known about it, and what it costs",
    ),
    _page(
        "docs/explanation/filters.md",
        "Filters: sound stopping when the next step depends on earlier answers",
    ),
    _page("docs/explanation/gibbs.md", "Gibbs releases: mechanisms built on samples"),
    _page(
        "docs/explanation/perturbation.md",
        "Perturbation: noise on the minimizer, the objective, the statistics",
    ),
    _page("docs/explanation/public-data.md", "Learning with public data"),
    _page(
        "docs/explanation/queries.md",
        "Counting queries: why the answers are private, and which noise errs least",
    ),
    _page("docs/explanation/robust.md", "Regression that ignores bad labels"),
    _page("docs/explanation/sampled-descent.md", "Descent on samples"),
    _page("docs/explanation/sparse.md", "Choosing columns privately"),
    _page(
        "docs/explanation/trajectory.md",
        "Why noisy descent is private: the trajectory and the last iterate",
    ),
    _page("docs/explanation/users.md", "Users: one promise for a person with all of its rows"),
)
"""Proofs of dpfit that guarantees rest on, by path."""

_BY_KEY = DOCUMENTS | {page.key: page for page in PAGES}
