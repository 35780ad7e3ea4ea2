type Tone = "good" | "busy" | "warn" | "bad" | "idle";

const TONES: Readonly<Record<string, Tone>> = {
  running: "good",
  ready: "good",
  succeeded: "good",
  ok: "good",
  active: "good",
  attached: "good",
  leader: "good",
  would_start: "good",
  would_wait: "warn",
  unsatisfiable: "bad",
  starting: "busy",
  scheduled: "busy",
  checkpointing: "busy",
  loading: "busy",
  pulling: "busy",
  restarting: "busy",
  recovering: "busy",
  retrying: "busy",
  accepted: "busy",
  pending: "warn",
  suspended: "warn",
  preempted: "warn",
  cancelling: "warn",
  draining: "warn",
  drained: "warn",
  suspect: "warn",
  degraded: "warn",
  unplaced: "warn",
  failed: "bad",
  lost: "bad",
  refused: "bad",
  refusing: "bad",
  unavailable: "bad",
  revoked: "bad",
  expired: "bad",
};

/** How good a state is. */
export function toneOf(state: string): Tone {
  return TONES[state] ?? "idle";
}

/** A state as a coloured word; the word alone carries the meaning. */
export function StatusBadge({ state }: { readonly state: string }) {
  return <span className={`badge badge-${toneOf(state)}`}>{state}</span>;
}
