//! Circles: files that use each other, straight or through others.

/// Returns the circles of a graph, the largest first, each with its files in order. One file is no circle.
pub(super) fn circles(nodes: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (from, to) in edges {
        next[from].push(to);
    }
    let reached: Vec<Vec<bool>> = (0..nodes).map(|start| reach(&next, start)).collect();
    let mut placed = vec![false; nodes];
    let mut found = Vec::new();
    for node in 0..nodes {
        if placed[node] {
            continue;
        }
        let circle: Vec<usize> =
            (node..nodes).filter(|&other| reached[node][other] && reached[other][node]).collect();
        for &member in &circle {
            placed[member] = true;
        }
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Says for each node whether it can be reached from `start` in one step or more.
fn reach(next: &[Vec<usize>], start: usize) -> Vec<bool> {
    let mut reached = vec![false; next.len()];
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        for &other in &next[node] {
            if !reached[other] {
                reached[other] = true;
                open.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_reach_each_other_are_a_circle() {
        let edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 0)];
        assert_eq!(circles(6, edges.into_iter()), [vec![0, 1, 2], vec![3, 4]]);
        assert!(circles(6, [(0, 1), (1, 2), (0, 2)].into_iter()).is_empty());
    }
}
