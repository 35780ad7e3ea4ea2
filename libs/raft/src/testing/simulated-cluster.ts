import { type Random, seededRandom } from "@heddle/base/random";
import type { Message } from "../core/message.ts";
import type { ConfChangeSingle, ConfChangeTransition } from "../membership/conf-change.ts";
import { SafetyChecker, SafetyViolation } from "./safety-checker.ts";
import { type SeededNodeBug, SimulatedNode } from "./simulated-node.ts";

const NODE_IDS = [1, 2, 3, 4, 5];
/** The most messages in the network; more are lost, as on an overloaded link. */
const MAX_MESSAGES = 400;
const TRANSITIONS: readonly ConfChangeTransition[] = ["auto", "implicit", "explicit"];

/** The fault rates of the network and the machines, drawn from the seed. */
interface FaultRates {
  readonly loss: number;
  readonly duplication: number;
  readonly crashes: number;
  readonly cuts: number;
  readonly confChanges: number;
}

/** A message in flight. */
interface InFlightMessage {
  readonly message: Message;
  /** The step from which it may arrive; later messages may overtake it. */
  readonly due: number;
}

/** Up to five nodes in one process: every step is drawn from the seed, so a run can be repeated. */
export class SimulatedCluster {
  readonly checker = new SafetyChecker();
  readonly #random: Random;
  readonly #nodes: readonly SimulatedNode[];
  readonly #faultRates: FaultRates;
  #network: InFlightMessage[] = [];
  /** Pairs `from>to` whose messages are lost. */
  readonly #cut = new Set<string>();
  #step = 0;
  #calm = false;
  #proposals = 0;
  /** For each read by its number: the highest index applied anywhere before it. */
  readonly #reads: number[] = [];
  /** The ticks of a node's clock for one tick of the fastest. */
  readonly #clockRates: readonly number[];
  /** Event counts, to show that a run was not idle. */
  readonly counts = { crashes: 0, confChanges: 0, reads: 0, delivered: 0 };

  constructor(seed: number, bug?: SeededNodeBug) {
    this.#random = seededRandom(seed);
    const config = {
      asyncStorageWrites: this.#chance(0.5),
      preVote: this.#chance(0.7),
      checkQuorum: bug === "leaseRead" || this.#chance(0.7),
      stepDownOnRemoval: this.#chance(0.2),
    };
    const isRough = this.#chance(0.7);
    this.#faultRates = {
      loss: isRough ? this.#random() * 0.3 : 0,
      duplication: isRough ? this.#random() * 0.5 : 0,
      crashes: isRough ? 0.001 : 0,
      cuts: isRough ? 0.003 : 0,
      confChanges: bug === undefined && this.#chance(0.6) ? 0.004 : 0,
    };
    this.#clockRates = NODE_IDS.map(() => (isRough ? 0.05 + 0.95 * this.#random() : 1));
    const voters = this.#chance(0.5) ? [1, 2, 3] : NODE_IDS;
    const confState = {
      voters,
      learners: [],
      votersOutgoing: [],
      learnersNext: [],
      autoLeave: false,
    };
    const bootstrap = { index: 1, term: 1, confState, data: new Uint8Array(0) };
    this.#nodes = NODE_IDS.map(
      (id) =>
        new SimulatedNode({
          id,
          random: this.#random,
          checker: this.checker,
          config,
          bug,
          bootstrap: voters.includes(id) ? bootstrap : undefined,
          send: (message) => this.#send(message),
          onRead: ({ index, context }) => {
            const [number = -1] = new Uint32Array(context.slice().buffer);
            const appliedBefore = this.#reads[number];
            const node = this.#nodes[id - 1] as SimulatedNode;
            if (appliedBefore !== undefined) this.checker.read(node, index, appliedBefore);
            this.counts.reads++;
          },
        }),
    );
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }

  #pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.#random() * items.length)] as T;
  }

  /** Runs `steps` steps with the fault rates of the seed. */
  run(steps: number): void {
    for (let i = 0; i < steps; i++) this.#runStep();
  }

  /** Ends all faults and proposals; requires a leader and equal nodes within `rounds` rounds. */
  heal(rounds: number): void {
    this.#calm = true;
    this.#cut.clear();
    for (const node of this.#nodes) if (!node.raw) node.start();
    for (let round = 0; round < rounds; round++) {
      for (const node of this.#nodes) {
        node.raw?.tick();
        node.compact(10);
      }
      this.#settle();
      if (round > 40 && this.#converged()) return;
    }
    throw new SafetyViolation(`the nodes did not converge within ${rounds} ticks after healing`);
  }

  #settle(): void {
    for (let i = 0; i < 30; i++) {
      const flights = this.#network;
      this.#network = [];
      for (const { message } of flights) this.#deliver(message);
      for (const node of this.#nodes) {
        node.processReady();
        for (let work = 0; work < 5; work++) {
          node.processStorage("append");
          node.processStorage("apply");
        }
      }
    }
  }

  get #leader(): SimulatedNode | undefined {
    const leaders = this.#nodes.filter((node) => node.raw?.status().role === "leader");
    return leaders.sort((a, b) => (b.raw?.status().term ?? 0) - (a.raw?.status().term ?? 0))[0];
  }

  /** True if a leader has committed its whole log, and each member has applied it. */
  #converged(): boolean {
    const status = this.#leader?.raw?.status();
    if (!status || status.config.voters.outgoing.size > 0) return this.#leaveJoint();
    const last = Math.max(...(this.#leader?.logTerms.keys() ?? []));
    if (status.commit < this.checker.maxApplied || status.commit < last) return false;
    return [...status.progress.keys()].every((id) => {
      const member = this.#nodes[id - 1];
      return member !== undefined && member.applied === status.commit;
    });
  }

  /** Proposes the end of an explicit joint configuration, which does not end by itself. */
  #leaveJoint(): false {
    const raw = this.#leader?.raw;
    if (raw && raw.status().applied > 0 && this.#chance(0.2)) this.#proposeConfChange(raw, []);
    return false;
  }

  #proposeConfChange(raw: NonNullable<SimulatedNode["raw"]>, changes: ConfChangeSingle[]): void {
    const transition = changes.length === 0 ? "auto" : this.#pick(TRANSITIONS);
    raw.proposeConfChange({ transition, changes, context: new Uint8Array(0) });
    this.counts.confChanges++;
  }

  #runStep(): void {
    this.#step++;
    const node = this.#pick(this.#nodes);
    if (!node.raw) {
      if (this.#chance(0.05)) node.start();
      return;
    }
    const dice = this.#random();
    if (dice < 0.1) this.#tick(node);
    else if (dice < 0.4) node.processReady(this.#crashPoint());
    else if (dice < 0.5) node.processStorage(this.#chance(0.5) ? "append" : "apply");
    else if (dice < 0.88) this.#deliverSome();
    else if (dice < 0.94) node.raw.propose(Uint8Array.of(this.#proposals++ % 256));
    else if (dice < 0.98) this.#read(node.raw);
    else this.#rareEvent(node, node.raw);
    if (this.#chance(this.#faultRates.cuts)) this.#changeCuts();
    if (this.#chance(this.#faultRates.confChanges)) this.#changeMembers();
    if (node.raw && this.#chance(this.#faultRates.crashes)) this.#crash(node);
  }

  /** At times a node was stopped for long and its ticks arrive at once. */
  #tick(node: SimulatedNode): void {
    if (!this.#chance(this.#clockRates[node.id - 1] as number)) return;
    node.raw?.tick(this.#chance(0.01) ? 30 : 1);
  }

  #crashPoint(): "taken" | "written" | undefined {
    if (!this.#chance(this.#faultRates.crashes)) return undefined;
    this.counts.crashes++;
    return this.#pick(["taken", "written"]);
  }

  #crash(node: SimulatedNode): void {
    node.crash();
    this.counts.crashes++;
  }

  #read(raw: NonNullable<SimulatedNode["raw"]>): void {
    const number = this.#reads.length;
    this.#reads.push(this.checker.maxApplied);
    raw.readIndex(new Uint8Array(Uint32Array.of(number).buffer));
  }

  #rareEvent(node: SimulatedNode, raw: NonNullable<SimulatedNode["raw"]>): void {
    const dice = this.#random();
    if (dice < 0.4) node.compact(this.#pick([0, 2, 10]));
    else if (dice < 0.6) raw.transferLeader(this.#pick(NODE_IDS));
    else if (dice < 0.8) raw.reportUnreachable(this.#pick(NODE_IDS));
    else if (dice < 0.9) raw.reportSnapshot(this.#pick(NODE_IDS), "failed");
    else if (dice < 0.95) raw.forgetLeader();
    else raw.campaign();
  }

  #changeMembers(): void {
    const raw = this.#leader?.raw;
    if (!raw) return;
    const { voters } = raw.status().config;
    const id = this.#pick(NODE_IDS);
    const changes: ConfChangeSingle[] = [];
    if (voters.outgoing.size === 0) {
      // One voter always stays, so that no change is refused for leaving none.
      const keep = Math.min(...voters.incoming);
      const type = this.#pick(["addNode", "removeNode", "addLearnerNode"] as const);
      changes.push({ type: id === keep ? "addNode" : type, nodeId: id });
      if (this.#chance(0.3)) changes.push({ type: "addNode", nodeId: this.#pick(NODE_IDS) });
    }
    this.#proposeConfChange(raw, changes);
  }

  /** Cuts a link in one direction, cuts off one node, or restores all links. */
  #changeCuts(): void {
    if (this.#chance(0.4)) {
      this.#cut.clear();
      return;
    }
    const one = this.#pick(NODE_IDS);
    if (this.#chance(0.4)) {
      this.#cut.add(`${one}>${this.#pick(NODE_IDS)}`);
      return;
    }
    for (const other of NODE_IDS) {
      this.#cut.add(`${one}>${other}`);
      this.#cut.add(`${other}>${one}`);
    }
  }

  #send(message: Message): void {
    const { loss, duplication } = this.#faultRates;
    const copies = !this.#calm && this.#chance(duplication) ? 2 : 1;
    for (let i = 0; i < copies; i++) {
      if (!this.#calm && (this.#chance(loss) || this.#network.length > MAX_MESSAGES)) {
        this.#lost(message);
        continue;
      }
      this.#network.push({ message, due: this.#step + Math.floor(this.#random() ** 6 * 150) });
    }
  }

  #deliverSome(): void {
    for (let i = 0; i < 4; i++) {
      const due = this.#network.findIndex((message) => message.due <= this.#step);
      if (due < 0) return;
      const [flight] = this.#network.splice(due, 1);
      if (flight) this.#deliver(flight.message);
    }
  }

  #deliver(message: Message): void {
    const { from, to } = message;
    const raw = this.#cut.has(`${from}>${to}`) ? undefined : this.#nodes[to - 1]?.raw;
    if (!raw) {
      this.#lost(message);
      return;
    }
    raw.step(message);
    this.counts.delivered++;
    if (message.type === "MsgSnap") this.#nodes[from - 1]?.raw?.reportSnapshot(to, "delivered");
  }

  /** A driver knows when a snapshot was lost, and must report it. */
  #lost({ type, from, to }: Message): void {
    if (type === "MsgSnap") this.#nodes[from - 1]?.raw?.reportSnapshot(to, "failed");
  }
}
