import { seededRandom } from "@heddle/base/random";
import { createMessage, type MessageType } from "../core/message.ts";
import { NO_DATA } from "../log/entry.ts";
import type { ConfChange } from "../membership/conf-change.ts";
import { parseConfChanges } from "./conf-change-commands.ts";
import { describeMessage, describeProgressMap, ROLE_NAMES } from "./describe.ts";
import {
  CommandError,
  type Directive,
  parseBoolean,
  parseNumber,
  ScriptError,
} from "./directive.ts";
import {
  EMPTY_SNAPSHOT,
  InteractionEnvironment,
  type NodeOptions,
  stepError,
} from "./interaction.ts";

type Command = (env: InteractionEnvironment, directive: Directive) => void;

/** The options of a script's nodes where add-nodes says nothing else. */
const DEFAULTS = {
  electionTicks: 3,
  heartbeatTicks: 1,
  maxMessageBytes: Number.POSITIVE_INFINITY,
  maxApplyingBytes: Number.POSITIVE_INFINITY,
  maxUncommittedBytes: Number.POSITIVE_INFINITY,
  maxInflightMessages: 2 ** 31 - 1,
  maxInflightBytes: Number.POSITIVE_INFINITY,
  checkQuorum: false,
  preVote: false,
  handOverOnRemoval: false,
  commitInRefusedVotes: false,
};

/** The arguments of add-nodes that set an option, and the option that each sets. */
const OPTIONS: Record<string, (value: string) => Partial<NodeOptions>> = {
  inflight: (value) => ({ maxInflightMessages: parseNumber(value) }),
  "async-storage-writes": (value) => ({ asyncStorageWrites: parseBoolean(value) }),
  prevote: (value) => ({ preVote: parseBoolean(value) }),
  checkquorum: (value) => ({ checkQuorum: parseBoolean(value) }),
  "max-committed-size-per-ready": (value) => ({ maxApplyingBytes: parseNumber(value) }),
  "disable-conf-change-validation": (value) => ({
    disableConfChangeValidation: parseBoolean(value),
  }),
  "step-down-on-removal": (value) => ({ stepDownOnRemoval: parseBoolean(value) }),
  "read-only": (value) => {
    if (value === "safe") return { readMode: "quorum" };
    if (value === "lease-based") return { readMode: "lease" };
    throw new CommandError(`invalid read-only option "${value}"`);
  },
};

const addNodes: Command = (env, directive) => {
  const random = seededRandom(env.nodes.length + 1);
  let options: NodeOptions = { ...DEFAULTS, random };
  let { index, data } = EMPTY_SNAPSHOT;
  const voters: number[] = [];
  const learners: number[] = [];
  for (const { key, values } of directive.args.slice(1)) {
    for (const value of values) {
      if (key === "voters") voters.push(parseNumber(value));
      else if (key === "learners") learners.push(parseNumber(value));
      else if (key === "index") index = parseNumber(value);
      else if (key === "content") data = new TextEncoder().encode(value);
      else options = { ...options, ...OPTIONS[key]?.(value) };
    }
  }
  const isEmpty = index === 0 && data.length === 0 && voters.length + learners.length === 0;
  if (!isEmpty && index <= 1) {
    throw new CommandError("index must be specified as > 1 due to bootstrap");
  }
  const confState = { ...EMPTY_SNAPSHOT.confState, voters, learners };
  env.addNodes(
    first(directive),
    { ...options, applied: index },
    isEmpty ? EMPTY_SNAPSHOT : { index, term: 1, confState, data },
  );
};

const deliverMessages: Command = (env, directive) => {
  const drop = directive.args.filter(({ key }) => key === "drop").flatMap(({ values }) => values);
  const hasType = directive.args.some(({ key }) => key === "type");
  const type = hasType ? (directive.value("type") as MessageType) : undefined;
  const deliveries = directive.args.flatMap(({ key, values }) => {
    if (values.length === 0) return [{ to: parseNumber(key), type, drop: false }];
    if (key !== "drop") return [];
    return values.map((value) => ({ to: parseNumber(value), type, drop: true }));
  });
  const both = directive.positional.find((id) => drop.includes(id));
  if (both) throw new ScriptError(`can't both deliver and drop msgs to ${both}`);
  let count = 0;
  for (const delivery of deliveries) count += env.deliver(delivery);
  if (count === 0) env.output.write("no messages\n");
};

const propose: Command = (env, directive) => {
  const [, data, ...others] = directive.args;
  if (!data || data.values.length > 0 || others.length > 0) {
    throw new ScriptError("propose takes a node and one word without =");
  }
  const bytes = new TextEncoder().encode(data.key);
  demandStep(stepError(env.node(first(directive)).raw.propose(bytes)));
};

const proposeConfChange: Command = (env, directive) => {
  let version: 1 | 2 = 2;
  let transition: ConfChange["transition"] = "auto";
  for (const { key, values } of directive.args.slice(1)) {
    for (const value of values) {
      if (key === "v1") version = parseBoolean(value) ? 1 : 2;
      else if (key !== "transition") throw new CommandError(`unknown command ${key}`);
      else if (value === "auto" || value === "implicit" || value === "explicit") transition = value;
      else throw new CommandError(`unknown transition ${value}`);
    }
  }
  const changes = parseConfChanges(directive.input);
  if (version === 1 && (changes.length > 1 || transition !== "auto")) {
    throw new CommandError("v1 conf change can only have one operation and no transition");
  }
  const { raw } = env.node(first(directive));
  const change = { transition, changes, context: NO_DATA };
  demandStep(stepError(raw.proposeConfChange(change, version)));
};

const printState: Command = (env) => {
  for (const node of env.nodes) {
    const { id, role, term, lead, config } = node.raw.status();
    const { incoming, outgoing } = config.voters;
    const isVoter = incoming.has(id) || outgoing.has(id);
    const voter = isVoter ? "(Voter)" : "(Non-Voter)";
    env.output.write(`${id}: ${ROLE_NAMES[role]} ${voter} Term:${term} Lead:${lead}\n`);
  }
};

const sendSnapshot: Command = (env, directive) => {
  const [from = 0, to = 0] = nodeIds(directive, 2);
  const { raw, storage } = env.node(from);
  const { term } = raw.status();
  const message = createMessage({ type: "MsgSnap", to, from, term, snapshot: storage.snapshot() });
  env.send(message);
  env.output.write(describeMessage(message));
};

const stabilize: Command = (env, directive) => {
  const levels = directive.args.filter(({ key }) => key === "log-level");
  const before = env.output.level;
  for (const level of levels.flatMap(({ values }) => values)) env.output.setLevel(level);
  const ids = directive.positional.map(parseNumber);
  env.stabilize(ids.length > 0 ? ids.map((id) => env.node(id)) : env.nodes);
  env.output.setLevel(before);
};

/** A command on each node that is named, under a title each if there are several. */
function forEachNode(
  title: string,
  action: (env: InteractionEnvironment, id: number) => void,
): Command {
  return (env, directive) => {
    const ids = directive.positional.map(parseNumber);
    for (const id of ids) {
      if (ids.length === 1) {
        action(env, id);
        continue;
      }
      env.output.write(`> ${id} ${title}\n`);
      env.output.indent(() => action(env, id));
    }
  };
}

function tick(env: InteractionEnvironment, id: number, ticks: number): void {
  for (let i = 0; i < ticks; i++) env.node(id).raw.tick();
}

/** The number that comes first, mostly a node's id. */
function first(directive: Directive): number {
  return parseNumber(directive.args[0]?.key ?? "");
}

function nodeIds(directive: Directive, count: number): number[] {
  const ids = directive.positional.map(parseNumber);
  if (ids.length !== count) throw new ScriptError(`${directive.command} needs ${count} node ids`);
  return ids;
}

function demandStep(error: string | undefined): void {
  if (error) throw new CommandError(error);
}

const COMMANDS: Record<string, Command> = {
  _breakpoint: () => {},
  "add-nodes": addNodes,
  campaign: (env, directive) => {
    demandStep(stepError(env.node(first(directive)).raw.campaign()));
  },
  compact: (env, directive) => {
    const node = env.node(first(directive));
    if (!node.storage.compact(parseNumber(directive.args[1]?.key ?? ""))) {
      throw new CommandError("requested index is unavailable due to compaction");
    }
    env.printLog(node);
  },
  "deliver-msgs": deliverMessages,
  "process-ready": forEachNode("handling Ready", (env, id) => env.processReady(env.node(id))),
  "process-append-thread": forEachNode("processing append thread", (env, id) =>
    env.processAppendThread(env.node(id)),
  ),
  "process-apply-thread": forEachNode("processing apply thread", (env, id) =>
    env.processApplyThread(env.node(id)),
  ),
  "log-level": (env, directive) => env.output.setLevel(directive.args[0]?.key ?? ""),
  "raft-log": (env, directive) => env.printLog(env.node(first(directive))),
  "raft-state": printState,
  "set-randomized-election-timeout": (env, directive) => {
    const ticks = parseNumber(directive.value("timeout"));
    env.node(first(directive)).raw.setRandomizedElectionTicks(ticks);
  },
  stabilize,
  status: (env, directive) => {
    env.output.write(describeProgressMap(env.node(first(directive)).raw.status().progress));
  },
  "tick-election": (env, directive) => tick(env, first(directive), DEFAULTS.electionTicks),
  "tick-heartbeat": (env, directive) => tick(env, first(directive), DEFAULTS.heartbeatTicks),
  "transfer-leadership": (env, directive) => {
    const from = env.node(parseNumber(directive.value("from")));
    from.raw.transferLeader(env.node(parseNumber(directive.value("to"))).id);
  },
  "forget-leader": (env, directive) => env.node(first(directive)).raw.forgetLeader(),
  "send-snapshot": sendSnapshot,
  propose,
  "propose-conf-change": proposeConfChange,
  "report-unreachable": (env, directive) => {
    const [reporter = 0, lost = 0] = nodeIds(directive, 2);
    env.node(reporter).raw.reportUnreachable(env.node(lost).id);
  },
};

/** Answers the commands of the interaction scripts in one environment. */
export class InteractionCommands {
  readonly #env = new InteractionEnvironment();

  handle(directive: Directive): string {
    const { output } = this.#env;
    output.take();
    let error = "";
    try {
      const command = COMMANDS[directive.command];
      if (command) command(this.#env, directive);
      else error = "unknown command";
    } catch (thrown) {
      if (!(thrown instanceof CommandError)) throw thrown;
      error = thrown.message;
    }
    return output.take() + error || "ok";
  }
}
