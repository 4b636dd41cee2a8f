//! `model`: models that jobs train.

use fanin_core::Duration;
use serde::Deserialize;

/// Models by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// ResNet50: 98 MB (`a2tp 7`).
    #[serde(rename = "resnet50")]
    ResNet50,
    /// VGG16: 528 MB (`a2tp 7`).
    #[serde(rename = "vgg16")]
    Vgg16,
    /// AlexNet: 236 MB (Table 7 of NetReduce's paper; `a2tp 7` has no number).
    #[serde(rename = "alexnet")]
    AlexNet,
    /// ResNet101: 44.5 million parameters of 4 bytes (He et al., CVPR 2016).
    #[serde(rename = "resnet101")]
    ResNet101,
    /// Inception v3: 23.8 million parameters of 4 bytes (Szegedy et al., CVPR 2016).
    #[serde(rename = "inceptionv3")]
    InceptionV3,
    /// LSTM: 1748 MB (`a2tp 7`).
    #[serde(rename = "lstm")]
    Lstm,
    /// BERT, base: 110 million parameters of 4 bytes (Devlin et al., NAACL 2019); `a2tp 7` does not say which BERT.
    #[serde(rename = "bert")]
    Bert,
}

impl Model {
    /// Bytes of its gradients.
    pub fn bytes(self) -> u64 {
        const MB: u64 = 1_000_000;
        match self {
            Model::ResNet50 => 98 * MB,
            Model::Vgg16 => 528 * MB,
            Model::AlexNet => 236 * MB,
            Model::ResNet101 => 178 * MB,
            Model::InceptionV3 => 95 * MB,
            Model::Lstm => 1_748 * MB,
            Model::Bert => 440 * MB,
        }
    }

    /// How long a worker computes in an iteration, where the plan does not say. A2TP's paper has no times. For AlexNet, VGG16 and ResNet50
    /// they are what Table 7 of NetReduce's paper leaves of an iteration without communication (a batch of 32 on a GPU). For the
    /// others there is no source: our choice, of the size of the largest of these.
    pub fn compute(self) -> Duration {
        Duration::from_us(match self {
            Model::AlexNet => 13_500,
            Model::Vgg16 => 73_100,
            Model::ResNet50 => 66_150,
            Model::Bert | Model::Lstm | Model::ResNet101 | Model::InceptionV3 => 100_000,
        })
    }
}
