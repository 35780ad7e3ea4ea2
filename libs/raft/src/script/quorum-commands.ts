import {
  committedIndex,
  type JointConfig,
  type MajorityConfig,
  majorityCommittedIndex,
  majorityVoteResult,
  sortedIds,
  type VoteResult,
  voteResult,
  voterIds,
} from "../tracker/quorum.ts";
import { type Directive, parseNumber, ScriptError } from "./directive.ts";

/** What a quorum command is about, as its arguments give it. */
interface Case {
  readonly config: JointConfig;
  /** True if the command names a second majority, which may be empty. */
  readonly isJoint: boolean;
  /** What each voter has reached or voted; a placeholder leaves a voter out. */
  readonly byVoter: ReadonlyMap<number, number>;
}

const VOTE_NAMES: Record<VoteResult, string> = {
  pending: "VotePending",
  lost: "VoteLost",
  won: "VoteWon",
};

/** Answers `committed` and `vote`, the commands of the quorum scripts. */
export function handleQuorumCommand(directive: Directive): string {
  const { command } = directive;
  if (command !== "committed" && command !== "vote") {
    throw new ScriptError(`unknown command: ${command}`);
  }
  const ids = numbers(directive, "cfg");
  const jointIds = numbers(directive, "cfgj");
  const given = command === "vote" ? votes(directive) : numbers(directive, "idx");
  const config = { incoming: new Set(ids), outgoing: new Set(jointIds) };
  const voters = voterIds(config);
  if (voters.length !== given.length) {
    const map = voters.map((id) => `${id}:{}`).join(" ");
    return `error: mismatched input (explicit or _) for voters map[${map}]: [${given.join(" ")}]`;
  }
  const byVoter = new Map<number, number>();
  [...new Set([...ids, ...jointIds])].forEach((id, i) => {
    const value = given[i];
    if (value) byVoter.set(id, value);
  });
  const isJoint = directive.args.some((arg) => arg.key === "cfgj");
  const subject = { config, isJoint, byVoter };
  return command === "vote" ? describeVote(subject) : describeCommitted(subject);
}

/** The values of all arguments of a name; `_` counts as 0 and `zero` as no value at all. */
function numbers(directive: Directive, key: string): number[] {
  return directive.args
    .filter((arg) => arg.key === key)
    .flatMap((arg) => arg.values)
    .filter((value) => value !== "zero")
    .map((value) => (value === "_" ? 0 : parseNumber(value)));
}

/** The votes as numbers: 0 for none yet, 1 against, 2 for. */
function votes(directive: Directive): number[] {
  const values = directive.args.filter((arg) => arg.key === "votes").flatMap((arg) => arg.values);
  return values.map((value) => {
    const vote = ["_", "n", "y"].indexOf(value);
    if (vote < 0) throw new ScriptError(`unknown vote: ${value}`);
    return vote;
  });
}

function describeVote({ config, isJoint, byVoter }: Case): string {
  const cast = new Map([...byVoter].map(([id, vote]) => [id, vote === 2]));
  const result = isJoint ? voteResult(config, cast) : majorityVoteResult(config.incoming, cast);
  const swapped = voteResult(swap(config), cast);
  const symmetric = swapped === result ? "" : `${VOTE_NAMES[swapped]} <-- via symmetry\n`;
  return `${symmetric}${VOTE_NAMES[result]}\n`;
}

function describeCommitted(subject: Case): string {
  const { config, isJoint, byVoter } = subject;
  const acked = (id: number) => byVoter.get(id);
  const index = isJoint
    ? committedIndex(config, acked)
    : majorityCommittedIndex(config.incoming, acked);
  const checks: [string, number][] = isJoint
    ? [["via symmetry", committedIndex(swap(config), acked)]]
    : majorityChecks(subject, index);
  const differing = checks
    .filter(([, other]) => other !== index)
    .map(([way, other]) => `${indexText(other)} <-- ${way}\n`);
  return `${progressBars(new Set(voterIds(config)), byVoter)}${differing.join("")}${indexText(index)}\n`;
}

function swap(config: JointConfig): JointConfig {
  return { incoming: config.outgoing, outgoing: config.incoming };
}

/** Other ways to the same commit index; a script prints those that disagree. */
function majorityChecks({ config, byVoter }: Case, index: number): [string, number][] {
  const { incoming } = config;
  const acked = (id: number) => byVoter.get(id);
  const checks: [string, number][] = [
    ["via alternative computation", committedByCounting(incoming, byVoter)],
    ["via zero-joint quorum", committedIndex({ incoming, outgoing: new Set() }, acked)],
    ["via self-joint quorum", committedIndex({ incoming, outgoing: incoming }, acked)],
  ];
  for (const [id, reached] of byVoter) {
    if (index <= reached) continue;
    // A voter below the commit index does not carry it, so it may fall back further.
    for (const lower of [reached - 1, 0]) {
      const overlaid = (other: number) => (other === id ? lower : byVoter.get(other));
      checks.push([`overlaying ${id}->${lower}`, majorityCommittedIndex(incoming, overlaid)]);
    }
  }
  return checks;
}

/** The commit index by its definition: the largest index that enough voters have reached. */
function committedByCounting(config: MajorityConfig, byVoter: ReadonlyMap<number, number>): number {
  if (config.size === 0) return Number.POSITIVE_INFINITY;
  const needed = Math.floor(config.size / 2) + 1;
  const reached = [...config].map((id) => byVoter.get(id) ?? 0);
  const committed = reached.filter((at) => reached.filter((other) => other >= at).length >= needed);
  return Math.max(0, ...committed);
}

function indexText(index: number): string {
  return index === Number.POSITIVE_INFINITY ? "∞" : String(index);
}

/** One line a voter, with a bar as long as there are voters behind it. */
function progressBars(config: MajorityConfig, byVoter: ReadonlyMap<number, number>): string {
  if (config.size === 0) return "<empty majority quorum>";
  const width = config.size;
  const reached = [...config].map((id) => byVoter.get(id) ?? 0);
  const lines = sortedIds(config).map((id) => {
    const at = byVoter.get(id);
    const behind = reached.filter((other) => other < (at ?? 0)).length;
    const bar =
      at === undefined
        ? `?${" ".repeat(width)}`
        : `${"x".repeat(behind)}>${" ".repeat(width - behind)}`;
    return `${bar} ${String(at ?? 0).padStart(5)}    (id=${id})\n`;
  });
  return `${" ".repeat(width)}    idx\n${lines.join("")}`;
}
