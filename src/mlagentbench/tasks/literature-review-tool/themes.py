"""What a review can be about: one theme for each of the categories below, worded in two ways.

The words are our own. Broad categories, into which papers of all kinds are put (cs.LG, cs.AI, stat.ML,
physics.app-ph), are no themes; their papers are in the corpus all the same.
"""

THEMES: dict[str, tuple[str, str]] = {
    "astro-ph.GA": (
        "how galaxies form, move and change, and the gas between their stars",
        "the structure of the Milky Way and of other galaxies",
    ),
    "astro-ph.HE": (
        "violent events in the sky such as gamma-ray bursts, neutron stars and cosmic rays",
        "black holes that swallow matter, pulsars and other sources of X-rays and gamma rays",
    ),
    "cond-mat.mes-hall": (
        "electrons in tiny devices and thin layers, including quantum dots and topological edge states",
        "transport at the nanoscale and in two-dimensional sheets such as graphene",
    ),
    "cond-mat.mtrl-sci": (
        "how the properties of solids, alloys and thin films follow from their structure",
        "the discovery and simulation of new crystals and other materials",
    ),
    "cond-mat.soft": (
        "polymers, colloids, gels and active matter",
        "soft substances that flow or deform, from emulsions to swarms of self-propelled particles",
    ),
    "cond-mat.stat-mech": (
        "phase transitions, fluctuations and systems far from equilibrium",
        "thermodynamics and random processes of many interacting particles",
    ),
    "cond-mat.str-el": (
        "solids in which electrons interact so strongly that magnetism or spin liquids arise",
        "correlated electrons, Mott insulators and frustrated magnets",
    ),
    "cond-mat.supr-con": (
        "materials that conduct without resistance, and how their electrons pair",
        "superconductors, their critical temperatures and Josephson junctions",
    ),
    "cs.CE": (
        "numerical simulation for engineering and for finance",
        "computer models of physical designs, such as finite elements and surrogate models",
    ),
    "cs.CL": (
        "computers that understand, translate and write human language",
        "large language models, their training, their evaluation and their mistakes in text",
    ),
    "cs.CR": (
        "attacks on software and networks, and the defence against them",
        "encryption, privacy and the detection of malware and intruders",
    ),
    "cs.CV": (
        "the recognition and generation of images and video",
        "object detection, segmentation and three-dimensional scenes from pictures",
    ),
    "cs.CY": (
        "what computing does to society, education and law",
        "the ethics and regulation of artificial intelligence",
    ),
    "cs.DC": (
        "the work of many machines on one job, in clusters and in the cloud",
        "parallel and distributed computation, scheduling and fault tolerance",
    ),
    "cs.DS": (
        "efficient algorithms, with proofs of how fast or how exact they are",
        "approximation algorithms, data structures and lower bounds on running time",
    ),
    "cs.GT": (
        "auctions, markets and other strategic behaviour of selfish agents",
        "equilibria of games, mechanism design and voting",
    ),
    "cs.HC": (
        "how people work with computers, and how interfaces should be designed for them",
        "user studies of interactive systems, virtual reality and assistants",
    ),
    "cs.IR": (
        "search engines and systems that recommend things to users",
        "ranking documents for a query, and recommendations from earlier clicks",
    ),
    "cs.IT": (
        "channel capacity, error-correcting codes and the limits of communication",
        "coding theory and the design of wireless links from information measures",
    ),
    "cs.NE": (
        "evolutionary search and spiking neural networks",
        "genetic algorithms and computation that imitates neurons with spikes",
    ),
    "cs.NI": (
        "protocols and traffic in the internet and in mobile networks",
        "edge computing, routing and 5G or 6G infrastructure",
    ),
    "cs.RO": (
        "machines that move, grasp and plan in the real world",
        "navigation and manipulation by robots, drones and autonomous vehicles",
    ),
    "cs.SE": (
        "how software is written, tested and repaired",
        "code generation, bugs and the practice of developers",
    ),
    "cs.SI": (
        "the spread of opinions and news among users of online platforms",
        "communities and influence in social media and other networks of people",
    ),
    "eess.IV": (
        "the reconstruction and enhancement of images, above all of medical scans",
        "image processing for MRI, CT and compression",
    ),
    "eess.SP": (
        "signals from antennas, radar and body sensors, and how they are processed",
        "channel estimation, beamforming and the analysis of EEG or ECG recordings",
    ),
    "eess.SY": (
        "the control of power grids, vehicles and other technical systems",
        "feedback controllers with guaranteed stability, and energy management",
    ),
    "gr-qc": (
        "gravitational waves, curved spacetime and alternatives to Einstein's theory",
        "solutions of general relativity such as wormholes, horizons and expanding universes",
    ),
    "hep-ph": (
        "what particle colliders and dark matter searches could reveal beyond the standard model",
        "predictions for quarks, neutrinos, the Higgs boson and their decays",
    ),
    "hep-th": (
        "string theory, holography and symmetries of quantum fields",
        "conformal field theory, supersymmetry and quantum gravity",
    ),
    "math-ph": (
        "rigorous mathematics of physical models",
        "spectra of operators, integrable systems and exact results in mathematical physics",
    ),
    "math.OC": (
        "how fast methods of optimization converge, and optimal control",
        "convex and stochastic programming, gradient methods and their proofs",
    ),
    "physics.ao-ph": (
        "weather, oceans and the climate of the atmosphere",
        "forecasts of rain and temperature, and models of the climate",
    ),
    "physics.atom-ph": (
        "cold atoms and ions under lasers, and precise measurements on them",
        "atomic clocks, Rydberg atoms and spectroscopy of single atoms",
    ),
    "physics.chem-ph": (
        "molecules, their reactions and their electronic structure",
        "computed energies, dynamics and spectra of molecules",
    ),
    "physics.optics": (
        "lasers, waveguides and the control of light",
        "photonic devices, metasurfaces and nonlinear pulses",
    ),
    "physics.soc-ph": (
        "models of crowds, cities and cooperation with the tools of physics",
        "epidemics and collective behaviour on networks, seen as physical systems",
    ),
    "q-bio.BM": (
        "the structure and design of proteins and other large molecules of life",
        "protein folding, binding of drugs and molecular docking",
    ),
    "q-bio.GN": (
        "DNA sequences, gene expression and what variants mean",
        "genome assembly, single-cell sequencing and genetic variation",
    ),
    "q-bio.NC": (
        "how brains perceive, remember and decide",
        "neurons, brain recordings and models of cognition",
    ),
    "q-bio.PE": (
        "evolution, species and the spread of infections in populations",
        "phylogenetic trees, ecology and the dynamics of populations",
    ),
    "q-bio.QM": (
        "quantitative methods for data from biology and medicine",
        "computational tools for biological experiments, diagnosis and drug response",
    ),
    "quant-ph": (
        "qubits, entanglement and algorithms for quantum computers",
        "quantum error correction, quantum communication and noisy quantum circuits",
    ),
    "stat.ME": (
        "statistical methods for causal effects, surveys and clinical trials",
        "estimators, tests and Bayesian models for data with missing or dependent values",
    ),
}
