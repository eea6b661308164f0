//! The cards of NVIDIA's driver, in a build that can read them.

use super::gpu_cards::Cards;

/// Returns the cards of NVIDIA's driver.
///
/// # Errors
/// A text with the reason: the library or its driver is missing, or this build lacks the feature
/// `nvidia`.
pub fn nvidia_cards() -> Result<Box<dyn Cards>, String> {
    #[cfg(feature = "nvidia")]
    return super::nvml::NvidiaCards::load().map(|cards| -> Box<dyn Cards> { Box::new(cards) });
    #[cfg(not(feature = "nvidia"))]
    Err("this build cannot read cards of NVIDIA; the packages of flatcap can, and \
         cargo build --release --features gpu builds a program that can"
        .to_owned())
}
