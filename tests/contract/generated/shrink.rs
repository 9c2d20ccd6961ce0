//! Finds fewer steps that still fail.

/// `steps` without those that a failure does not need: whole runs of steps are left out, halves
/// first and single ones last, as long as `fails` says that the rest still does. The first step,
/// which creates the custom resource, always stays. `fails` is asked at most `attempts` times.
pub async fn shrunk<S: Clone>(
    steps: Vec<S>,
    mut attempts: usize,
    mut fails: impl AsyncFnMut(&[S]) -> bool,
) -> Vec<S> {
    let mut steps = steps;
    let mut run = steps.len().saturating_sub(1).div_ceil(2);
    while run > 0 {
        let mut at = 1;
        let mut shorter = false;
        while at < steps.len() && attempts > 0 {
            let mut fewer = steps[..at].to_vec();
            fewer.extend_from_slice(&steps[(at + run).min(steps.len())..]);
            attempts -= 1;
            if fails(&fewer).await {
                (steps, shorter) = (fewer, true);
            } else {
                at += run;
            }
        }
        // Steps that could not be left out before may be dispensable now.
        run = if run == 1 && shorter { 1 } else { run / 2 };
        if attempts == 0 {
            break;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator that forgets a port after a deletion if the port was added before: only the
    /// creation (0), the port (7) and the deletion (3), in this order, show it.
    async fn has_the_bug(steps: &[u8]) -> bool {
        let at = |step: u8| steps.iter().position(|s| *s == step);
        matches!((at(0), at(7), at(3)), (Some(0), Some(port), Some(deleted)) if port < deleted)
    }

    #[tokio::test]
    async fn a_failing_sequence_is_reduced_to_the_necessary_steps() {
        let steps = vec![0, 1, 2, 5, 7, 1, 1, 2, 4, 5, 6, 1, 2, 9, 8, 1, 2, 4, 6, 3];
        let mut asked = 0;
        let minimal = shrunk(steps, 60, async |steps: &[u8]| {
            asked += 1;
            has_the_bug(steps).await
        });
        assert_eq!(minimal.await, [0, 7, 3]);
        assert!(asked <= 60, "{asked} attempts");
    }

    #[tokio::test]
    async fn the_reduction_stops_at_the_limit_with_failing_steps() {
        let steps: Vec<u8> = (0..30).collect();
        for attempts in 0..20 {
            let mut asked = 0;
            let fails = async |steps: &[u8]| {
                asked += 1;
                steps.contains(&13) && steps.contains(&29)
            };
            let left = shrunk(steps.clone(), attempts, fails).await;
            assert!(asked <= attempts);
            assert!([0, 13, 29].iter().all(|needed| left.contains(needed)), "{left:?}");
        }
    }

    #[tokio::test]
    async fn a_sequence_that_always_fails_is_reduced_to_its_first_step() {
        assert_eq!(shrunk(vec![0, 1, 2, 3], 60, async |_: &[u8]| true).await, [0]);
    }
}
