"""The papers that the methods come from, under the names of the methods."""

from ttabench.method import Paper

ACTMAD = Paper(
    key="mirza2023actmad",
    title="ActMAD: Activation Matching to Align Distributions for Test-Time-Training",
    authors="Mirza, Muhammad Jehanzeb and Soneira, Pol Jané and Lin, Wei and Kozinski, Mateusz and "
    "Possegger, Horst and Bischof, Horst",
    venue="CVPR",
    year=2023,
    url="https://arxiv.org/abs/2211.12870",
)
AQR = Paper(
    key="mehrbod2025test",
    title="Test Time Adaptation Using Adaptive Quantile Recalibration",
    authors="Mehrbod, Paria and Vianna, Pedro and Nanfack, Geraldin and Wolf, Guy and Belilovsky, Eugene",
    venue="arXiv",
    year=2025,
    url="https://arxiv.org/abs/2511.03148",
)
BN_STATS = Paper(
    key="nado2020evaluating",
    title="Evaluating Prediction-Time Batch Normalization for Robustness under Covariate Shift",
    authors="Nado, Zachary and Padhy, Shreyas and Sculley, D. and D'Amour, Alexander and "
    "Lakshminarayanan, Balaji and Snoek, Jasper",
    venue="arXiv",
    year=2020,
    url="https://arxiv.org/abs/2006.10963",
)
BN_STATS_MIXED = Paper(
    key="schneider2020improving",
    title="Improving robustness against common corruptions by covariate shift adaptation",
    authors="Schneider, Steffen and Rusak, Evgenia and Eck, Luisa and Bringmann, Oliver and "
    "Brendel, Wieland and Bethge, Matthias",
    venue="NeurIPS",
    year=2020,
    url="https://arxiv.org/abs/2006.16971",
)
CORAL = Paper(
    key="liu2021tttpp",
    title="TTT++: When Does Self-Supervised Test-Time Training Fail or Thrive?",
    authors="Liu, Yuejiang and Kothari, Parth and van Delft, Bastien and Bellot-Gurlet, Baptiste and "
    "Mordan, Taylor and Alahi, Alexandre",
    venue="NeurIPS",
    year=2021,
    url="https://openreview.net/forum?id=86NHK__yFDl",
)
CMF = Paper(
    key="lee2024continual",
    title="Continual Momentum Filtering on Parameter Space for Online Test-time Adaptation",
    authors="Lee, Jae-Hong and Chang, Joon-Hyuk",
    venue="ICLR",
    year=2024,
    url="https://openreview.net/forum?id=BllUWdpIOA",
)
COME = Paper(
    key="zhang2025come",
    title="COME: Test-time Adaption by Conservatively Minimizing Entropy",
    authors="Zhang, Qingyang and Bian, Yatao and Kong, Xinke and Zhao, Peilin and Zhang, Changqing",
    venue="ICLR",
    year=2025,
    url="https://arxiv.org/abs/2410.10894",
)
COTTA = Paper(
    key="wang2022continual",
    title="Continual Test-Time Domain Adaptation",
    authors="Wang, Qin and Fink, Olga and Van Gool, Luc and Dai, Dengxin",
    venue="CVPR",
    year=2022,
    url="https://arxiv.org/abs/2203.13591",
)
DEYO = Paper(
    key="lee2024entropy",
    title="Entropy is not Enough for Test-Time Adaptation: From the Perspective of Disentangled Factors",
    authors="Lee, Jonghyun and Jung, Dahuin and Lee, Saehyung and Park, Junsung and Shin, Juhyeon and "
    "Hwang, Uiwon and Yoon, Sungroh",
    venue="ICLR",
    year=2024,
    url="https://arxiv.org/abs/2403.07366",
)
EATA = Paper(
    key="niu2022efficient",
    title="Efficient Test-Time Model Adaptation without Forgetting",
    authors="Niu, Shuaicheng and Wu, Jiaxiang and Zhang, Yifan and Chen, Yaofo and Zheng, Shijian and "
    "Zhao, Peilin and Tan, Mingkui",
    venue="ICML",
    year=2022,
    url="https://arxiv.org/abs/2204.02610",
)
FOA = Paper(
    key="niu2024test",
    title="Test-Time Model Adaptation with Only Forward Passes",
    authors="Niu, Shuaicheng and Miao, Chunyan and Chen, Guohao and Wu, Pengcheng and Zhao, Peilin",
    venue="ICML",
    year=2024,
    url="https://arxiv.org/abs/2404.01650",
)
LAME = Paper(
    key="boudiaf2022parameter",
    title="Parameter-Free Online Test-Time Adaptation",
    authors="Boudiaf, Malik and Mueller, Romain and Ben Ayed, Ismail and Bertinetto, Luca",
    venue="CVPR",
    year=2022,
    url="https://arxiv.org/abs/2201.05718",
)
MEMO = Paper(
    key="zhang2022memo",
    title="MEMO: Test Time Robustness via Adaptation and Augmentation",
    authors="Zhang, Marvin and Levine, Sergey and Finn, Chelsea",
    venue="NeurIPS",
    year=2022,
    url="https://arxiv.org/abs/2110.09506",
)
NEO = Paper(
    key="murphy2026neo",
    title="NEO: No-Optimization Test-Time Adaptation through Latent Re-Centering",
    authors="Murphy, Alexander and Danilowski, Michal and Chatterjee, Soumyajit and Ghosh, Abhirup",
    venue="ICLR",
    year=2026,
    url="https://arxiv.org/abs/2510.05635",
)
QUANTILE = Paper(
    key="danda2026matching",
    title="Matching High-Dimensional Geometric Quantiles for Test-Time Adaptation of Transformers and "
    "Convolutional Networks Alike",
    authors="Danda, Sravan and Challa, Aditya and Mehendale, Shlok and Saha, Snehanshu",
    venue="arXiv",
    year=2026,
    url="https://arxiv.org/abs/2601.11022",
)
POEM = Paper(
    key="bar2024protected",
    title="Protected Test-Time Adaptation via Online Entropy Matching: A Betting Approach",
    authors="Bar, Yarin and Shaer, Shalev and Romano, Yaniv",
    venue="NeurIPS",
    year=2024,
    url="https://arxiv.org/abs/2408.07511",
)
RDUMB = Paper(
    key="press2023rdumb",
    title="RDumb: A simple approach that questions our progress in continual test-time adaptation",
    authors="Press, Ori and Schneider, Steffen and Kümmerer, Matthias and Bethge, Matthias",
    venue="NeurIPS",
    year=2023,
    url="https://arxiv.org/abs/2306.05401",
)
NOTE = Paper(
    key="gong2022note",
    title="NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation",
    authors="Gong, Taesik and Jeong, Jongheon and Kim, Taewon and Kim, Yewon and Shin, Jinwoo and "
    "Lee, Sung-Ju",
    venue="NeurIPS",
    year=2022,
    url="https://arxiv.org/abs/2208.05117",
)
RMT = Paper(
    key="dobler2023robust",
    title="Robust Mean Teacher for Continual and Gradual Test-Time Adaptation",
    authors="Döbler, Mario and Marsden, Robert A. and Yang, Bin",
    venue="CVPR",
    year=2023,
    url="https://arxiv.org/abs/2211.13081",
)
ROID = Paper(
    key="marsden2024universal",
    title="Universal Test-time Adaptation through Weight Ensembling, Diversity Weighting, and Prior "
    "Correction",
    authors="Marsden, Robert A. and Döbler, Mario and Yang, Bin",
    venue="WACV",
    year=2024,
    url="https://arxiv.org/abs/2306.00650",
)
ROTTA = Paper(
    key="yuan2023robust",
    title="Robust Test-Time Adaptation in Dynamic Scenarios",
    authors="Yuan, Longhui and Xie, Binhui and Li, Shuang",
    venue="CVPR",
    year=2023,
    url="https://arxiv.org/abs/2303.13899",
)
SAR = Paper(
    key="niu2023towards",
    title="Towards Stable Test-Time Adaptation in Dynamic Wild World",
    authors="Niu, Shuaicheng and Wu, Jiaxiang and Zhang, Yifan and Wen, Zhiquan and Chen, Yaofo and "
    "Zhao, Peilin and Tan, Mingkui",
    venue="ICLR",
    year=2023,
    url="https://arxiv.org/abs/2302.12400",
)
SHOT = Paper(
    key="liang2020shot",
    title="Do We Really Need to Access the Source Data? Source Hypothesis Transfer for Unsupervised "
    "Domain Adaptation",
    authors="Liang, Jian and Hu, Dapeng and Feng, Jiashi",
    venue="ICML",
    year=2020,
    url="https://arxiv.org/abs/2002.08546",
)
SOTTA = Paper(
    key="gong2023sotta",
    title="SoTTA: Robust Test-Time Adaptation on Noisy Data Streams",
    authors="Gong, Taesik and Kim, Yewon and Lee, Taeckyung and Chottananurak, Sorn and Lee, Sung-Ju",
    venue="NeurIPS",
    year=2023,
    url="https://arxiv.org/abs/2310.10074",
)
T3A = Paper(
    key="iwasawa2021test",
    title="Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization",
    authors="Iwasawa, Yusuke and Matsuo, Yutaka",
    venue="NeurIPS",
    year=2021,
    url="https://openreview.net/forum?id=e_yvNqkJKAW",
)
TCA = Paper(
    key="you2025testtime",
    title="Test-time Correlation Alignment",
    authors="You, Linjing and Lu, Jiabao and Huang, Xiayuan",
    venue="ICML",
    year=2025,
    url="https://proceedings.mlr.press/v267/you25c.html",
)
TENT = Paper(
    key="wang2021tent",
    title="Tent: Fully Test-Time Adaptation by Entropy Minimization",
    authors="Wang, Dequan and Shelhamer, Evan and Liu, Shaoteng and Olshausen, Bruno and Darrell, Trevor",
    venue="ICLR",
    year=2021,
    url="https://arxiv.org/abs/2006.10726",
)
TTAC = Paper(
    key="su2022revisiting",
    title="Revisiting Realistic Test-Time Training: Sequential Inference and Adaptation by Anchored "
    "Clustering",
    authors="Su, Yongyi and Xu, Xun and Jia, Kui",
    venue="NeurIPS",
    year=2022,
    url="https://arxiv.org/abs/2206.02721",
)
MEDBN = Paper(
    key="park2024medbn",
    title="MedBN: Robust Test-Time Adaptation against Malicious Test Samples",
    authors="Park, Hyejin and Hwang, Jeongyeon and Mun, Sunung and Park, Sangdon and Ok, Jungseul",
    venue="CVPR",
    year=2024,
    url="https://arxiv.org/abs/2403.19326",
)
ADACONTRAST = Paper(
    key="chen2022contrastive",
    title="Contrastive Test-Time Adaptation",
    authors="Chen, Dian and Wang, Dequan and Darrell, Trevor and Ebrahimi, Sayna",
    venue="CVPR",
    year=2022,
    url="https://arxiv.org/abs/2204.10377",
)
ASR = Paper(
    key="lim2026when",
    title="When and Where to Reset Matters for Long-Term Test-Time Adaptation",
    authors="Lim, Taejun and Hwang, Joong-Won and Lee, Kibok",
    venue="ICLR",
    year=2026,
    url="https://arxiv.org/abs/2603.03796",
)
DPCORE = Paper(
    key="zhang2025dpcore",
    title="DPCore: Dynamic Prompt Coreset for Continual Test-Time Adaptation",
    authors="Zhang, Yunbei and Mehra, Akshay and Niu, Shuaicheng and Hamm, Jihun",
    venue="ICML",
    year=2025,
    url="https://arxiv.org/abs/2406.10737",
)
REM = Paper(
    key="han2025ranked",
    title="Ranked Entropy Minimization for Continual Test-Time Adaptation",
    authors="Han, Jisu and Na, Jaemin and Hwang, Wonjun",
    venue="ICML",
    year=2025,
    url="https://arxiv.org/abs/2505.16441",
)
SPA = Paper(
    key="niu2025selfbootstrapping",
    title="Self-Bootstrapping for Versatile Test-Time Adaptation",
    authors="Niu, Shuaicheng and Chen, Guohao and Zhao, Peilin and Wang, Tianyi and Wu, Pengcheng and "
    "Shen, Zhiqi",
    venue="ICML",
    year=2025,
    url="https://arxiv.org/abs/2504.08010",
)
TEA = Paper(
    key="yuan2024tea",
    title="TEA: Test-time Energy Adaptation",
    authors="Yuan, Yige and Xu, Bingbing and Hou, Liang and Sun, Fei and Shen, Huawei and Cheng, Xueqi",
    venue="CVPR",
    year=2024,
    url="https://arxiv.org/abs/2311.14402",
)
