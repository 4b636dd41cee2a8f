//! Convolutional networks: their layers, from their papers.

/// A part of a network: its tensors, and the operations of a forward pass for one image.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Elements of its tensors, in their order.
    pub tensors: Vec<u64>,
    /// Operations of its forward pass: two for each multiplication with its addition.
    pub operations: f64,
}

fn convolution(name: String, from: u64, to: u64, kernel: u64, side: u64, tensors: &[u64]) -> Part {
    let weights = from * to * kernel * kernel;
    Part { name, tensors: [&[weights], tensors].concat(), operations: 2.0 * (weights * side * side) as f64 }
}

fn connected(name: &str, from: u64, to: u64) -> Part {
    Part { name: name.into(), tensors: vec![from * to, to], operations: 2.0 * (from * to) as f64 }
}

/// ResNet-50 (He et al., CVPR 2016, table 1), for images of 224 by 224; a batch norm has a weight and a bias a channel. The stride is at the
/// convolution of 3 by 3, as in torchvision.
pub fn resnet50() -> Vec<Part> {
    let norm = |channels: u64| [channels, channels];
    let mut parts = vec![convolution("conv1".into(), 3, 64, 7, 112, &norm(64))];
    let mut from = 64;
    for (stage, (blocks, width, side)) in [(3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)].into_iter().enumerate() {
        for block in 0..blocks {
            let name = |part: &str| format!("layer{}.{block}.{part}", stage + 1);
            let before = if block == 0 && stage > 0 { side * 2 } else { side };
            parts.push(convolution(name("conv1"), from, width, 1, before, &norm(width)));
            parts.push(convolution(name("conv2"), width, width, 3, side, &norm(width)));
            parts.push(convolution(name("conv3"), width, width * 4, 1, side, &norm(width * 4)));
            if block == 0 {
                parts.push(convolution(name("downsample"), from, width * 4, 1, side, &norm(width * 4)));
            }
            from = width * 4;
        }
    }
    parts.push(connected("fc", 2048, 1000));
    parts
}

/// VGG-16 (Simonyan and Zisserman, ICLR 2015, table 1, D), for images of 224 by 224.
pub fn vgg16() -> Vec<Part> {
    let mut parts = Vec::new();
    let mut from = 3;
    for (stage, (layers, to, side)) in [(2, 64, 224), (2, 128, 112), (3, 256, 56), (3, 512, 28), (3, 512, 14)].into_iter().enumerate() {
        for layer in 0..layers {
            parts.push(convolution(format!("conv{}_{}", stage + 1, layer + 1), from, to, 3, side, &[to]));
            from = to;
        }
    }
    parts.extend([connected("fc6", 512 * 7 * 7, 4096), connected("fc7", 4096, 4096), connected("fc8", 4096, 1000)]);
    parts
}

/// The layers of a network of the data file.
pub fn parts(name: &str) -> Option<Vec<Part>> {
    match name {
        "resnet50" => Some(resnet50()),
        "vgg16" => Some(vgg16()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::buckets::{CAP, buckets};
    use crate::generate::models::Data;

    fn total(parts: &[Part]) -> u64 {
        parts.iter().flat_map(|part| &part.tensors).sum()
    }

    #[test]
    fn parameters_are_exactly_those_that_were_published() {
        let data = Data::load().unwrap();
        for (name, published) in &data.convolutional {
            assert_eq!(total(&parts(name).unwrap()), published.parameters, "{name}");
        }
    }

    #[test]
    fn operations_are_those_of_the_papers() {
        // 4.1 and 15.5 thousand million multiplications with additions (torchvision's documentation: 4.09 and 15.47).
        let operations = |parts: Vec<Part>| parts.iter().map(|part| part.operations).sum::<f64>() / 2e9;
        assert!((operations(resnet50()) - 4.09).abs() < 0.01, "{}", operations(resnet50()));
        assert!((operations(vgg16()) - 15.47).abs() < 0.01, "{}", operations(vgg16()));
    }

    #[test]
    fn buckets_of_resnet50_are_those_that_a_profile_of_it_shows() {
        let tensors: Vec<Vec<u64>> = resnet50().into_iter().map(|part| part.tensors).collect();
        let found: Vec<u64> = buckets(&tensors, 4, CAP).iter().map(|bucket| bucket.elements).collect();
        assert_eq!(found, [2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040]);
    }
}
