import { APPEND_THREAD, APPLY_THREAD, type Message } from "../core/message.ts";
import type { Ready } from "../core/ready.ts";
import type { ConfState, HardState, Role, Snapshot } from "../core/state.ts";
import type { Entry } from "../log/entry.ts";
import {
  type ConfChange,
  type ConfChangeType,
  decodeConfChange,
} from "../membership/conf-change.ts";
import type { Progress, ProgressState } from "../tracker/progress.ts";
import { sortedIds } from "../tracker/quorum.ts";
import type { ProgressMap, TrackerConfig } from "../tracker/tracker.ts";

/** The roles by the names in the scripts. */
export const ROLE_NAMES: Record<Role, string> = {
  follower: "StateFollower",
  preCandidate: "StatePreCandidate",
  candidate: "StateCandidate",
  leader: "StateLeader",
};

const PROGRESS_NAMES: Record<ProgressState, string> = {
  probe: "StateProbe",
  replicate: "StateReplicate",
  snapshot: "StateSnapshot",
};

const CHANGE_NAMES: Record<ConfChangeType, { letter: string; name: string }> = {
  addNode: { letter: "v", name: "ConfChangeAddNode" },
  removeNode: { letter: "r", name: "ConfChangeRemoveNode" },
  updateNode: { letter: "u", name: "ConfChangeUpdateNode" },
  addLearnerNode: { letter: "l", name: "ConfChangeAddLearnerNode" },
};

const TRANSITION_NAMES: Record<ConfChange["transition"], string> = {
  auto: "ConfChangeTransitionAuto",
  implicit: "ConfChangeTransitionJointImplicit",
  explicit: "ConfChangeTransitionJointExplicit",
};

/** A node's id as messages and log lines write it; memberships and figures have it in decimal. */
export function hex(id: number): string {
  return id.toString(16);
}

function idSet(ids: Iterable<number>): string {
  return `(${sortedIds(ids).join(" ")})`;
}

/** A membership on one line. */
export function describeConfig(config: TrackerConfig): string {
  const { voters, learners, learnersNext, autoLeave } = config;
  let text = `voters=${idSet(voters.incoming)}`;
  if (voters.outgoing.size > 0) text += `&&${idSet(voters.outgoing)}`;
  if (learners.size > 0) text += ` learners=${idSet(learners)}`;
  if (learnersNext.size > 0) text += ` learners_next=${idSet(learnersNext)}`;
  return autoLeave ? `${text} autoleave` : text;
}

/** What a leader knows of one member. */
export function describeProgress(progress: Progress): string {
  let text = `${PROGRESS_NAMES[progress.state]} match=${progress.match} next=${progress.next}`;
  if (progress.isLearner) text += " learner";
  if (progress.paused) text += " paused";
  if (progress.pendingSnapshot > 0) text += ` pendingSnap=${progress.pendingSnapshot}`;
  if (!progress.recentActive) text += " inactive";
  const { count, full } = progress.inflights;
  if (count > 0) text += ` inflight=${count}${full ? "[full]" : ""}`;
  return text;
}

/** What a leader knows of its members, a line each in the order of their ids. */
export function describeProgressMap(progress: ProgressMap): string {
  return sortedIds(progress.keys())
    .map((id) => `${id}: ${describeProgress(progress.get(id) as Progress)}\n`)
    .join("");
}

/** A stored membership on one line. */
function describeConfState(state: ConfState): string {
  const list = (ids: readonly number[]) => `[${ids.join(" ")}]`;
  return (
    `Voters:${list(state.voters)} VotersOutgoing:${list(state.votersOutgoing)} ` +
    `Learners:${list(state.learners)} LearnersNext:${list(state.learnersNext)} ` +
    `AutoLeave:${state.autoLeave}`
  );
}

/** The same in the text form of protobuf, as log lines have it. */
export function protoConfState(state: ConfState): string {
  const list = (name: string, ids: readonly number[]) => ids.map((id) => `${name}:${id}`);
  return [
    ...list("voters", state.voters),
    ...list("learners", state.learners),
    ...list("voters_outgoing", state.votersOutgoing),
    ...list("learners_next", state.learnersNext),
    `auto_leave:${state.autoLeave}`,
  ].join(" ");
}

function describeSnapshot({ index, term, confState }: Snapshot): string {
  return `Index:${index} Term:${term} ConfState:${describeConfState(confState)}`;
}

function describeHardState({ term, vote, commit }: HardState): string {
  return `Term:${term}${vote === 0 ? "" : ` Vote:${vote}`} Commit:${commit}`;
}

/** A membership change with its transition, as the log of a leader shows it. */
export function describeConfChange(change: ConfChange): string {
  const steps = change.changes.map(
    ({ type, nodeId }) => ` changes:{type:${CHANGE_NAMES[type].name} node_id:${nodeId}}`,
  );
  const context = change.context.length > 0 ? ` context:${quote(change.context)}` : "";
  return `transition:${TRANSITION_NAMES[change.transition]}${steps.join("")}${context}`;
}

/** An entry on one line. */
function describeEntry(entry: Entry): string {
  const change = decodeConfChange(entry);
  const payload = change
    ? change.changes.map(({ type, nodeId }) => `${CHANGE_NAMES[type].letter}${nodeId}`).join(" ")
    : quote(entry.data);
  return `${entry.term}/${entry.index} ${entry.type}${payload === "" ? "" : ` ${payload}`}`;
}

/** Entries, a line each. */
export function describeEntries(entries: readonly Entry[]): string {
  return entries.map((entry) => `${describeEntry(entry)}\n`).join("");
}

/** Bytes as a Go string literal: control characters and what is no UTF-8 are escaped. */
function quote(data: Uint8Array): string {
  const named: Record<string, string> = {
    "\x07": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
  };
  const byte = (value: number) => `\\x${value.toString(16).padStart(2, "0")}`;
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text: string;
  try {
    text = decoder.decode(data);
  } catch {
    return `"${[...data].map((value) => (value < 0x80 ? String.fromCharCode(value) : byte(value))).join("")}"`;
  }
  const escaped = [...text].map((char) => {
    const code = char.codePointAt(0) as number;
    return named[char] ?? (code < 0x20 || code === 0x7f ? byte(code) : char);
  });
  return `"${escaped.join("")}"`;
}

function describeTarget(id: number): string {
  if (id === 0) return "None";
  if (id === APPEND_THREAD) return "AppendThread";
  if (id === APPLY_THREAD) return "ApplyThread";
  return hex(id);
}

/** A message; its entries, snapshot and responses may take further lines. */
export function describeMessage(message: Message, indent = ""): string {
  const { from, to, type, term, logTerm, index } = message;
  const route = `${describeTarget(from)}->${describeTarget(to)}`;
  let text = `${indent}${route} ${type} Term:${term} Log:${logTerm}/${index}`;
  if (message.reject) text += ` Rejected (Hint: ${message.rejectHint})`;
  if (message.commit !== 0) text += ` Commit:${message.commit}`;
  if (message.vote !== 0) text += ` Vote:${message.vote}`;
  const [first, ...others] = message.entries.map(describeEntry);
  if (first !== undefined && others.length === 0) {
    text += ` Entries:[${first}]`;
  } else if (first !== undefined) {
    const lines = [first, ...others].map((entry) => `\n${indent}  ${entry}`);
    text += ` Entries:[${lines.join("")}\n${indent}]`;
  }
  const { snapshot } = message;
  if (snapshot && snapshot.index !== 0) {
    text += `\n${indent}  Snapshot: ${describeSnapshot(snapshot)}`;
  }
  if (message.responses.length > 0) {
    const lines = message.responses.map((response) => describeMessage(response, `${indent}  `));
    text += ` Responses:[\n${lines.join("\n")}\n${indent}]`;
  }
  return text;
}

/** A batch of work; only what it holds is shown. */
export function describeReady(ready: Ready): string {
  const { softState, hardState, readStates, snapshot } = ready;
  let text = "";
  if (softState) text += `Lead:${softState.lead} State:${ROLE_NAMES[softState.role]}\n`;
  if (hardState) text += `HardState ${describeHardState(hardState)}\n`;
  if (readStates.length > 0) {
    const reads = readStates.map(({ index, context }) => `{${index} [${context.join(" ")}]}`);
    text += `ReadStates [${reads.join(" ")}]\n`;
  }
  if (ready.entries.length > 0) text += `Entries:\n${describeEntries(ready.entries)}`;
  if (snapshot) text += `Snapshot ${describeSnapshot(snapshot)}\n`;
  if (ready.committedEntries.length > 0) {
    text += `CommittedEntries:\n${describeEntries(ready.committedEntries)}`;
  }
  if (ready.messages.length > 0) {
    text += `Messages:\n${ready.messages.map((message) => `${describeMessage(message)}\n`).join("")}`;
  }
  return text === "" ? "<empty Ready>" : `Ready MustSync=${ready.mustSync}:\n${text}`;
}
