/**
 * A client's request on one key, and its outcome, which is undefined if the client did not learn
 * it. A key holds a list of values; a register is a list of at most one.
 */
export type Action =
  /** Replaces the list with this value alone. */
  | { readonly type: "write"; readonly value: string }
  /** Appends the value to the list. */
  | { readonly type: "append"; readonly value: string }
  /** Sets an empty key to the value; `created` is false if it was not empty. */
  | {
      readonly type: "create";
      readonly value: string;
      readonly created?: boolean | undefined;
    }
  /** Replaces the expected value; `replaced` is false if another was there. */
  | {
      readonly type: "replace";
      readonly expected: string;
      readonly value: string;
      readonly replaced?: boolean | undefined;
    }
  /** Empties the list; `removed` is false if it was empty. */
  | { readonly type: "remove"; readonly removed?: boolean | undefined }
  /** Saw these values. */
  | { readonly type: "read"; readonly values: readonly string[] };

/**
 * One call of one client, as plain data for histories of processes and of simulations. Calls that
 * certainly changed nothing are left out.
 *
 * - All clients share one clock, in any unit.
 * - Calls that touch in time count as concurrent.
 */
export interface Operation {
  readonly client: string;
  readonly key: string;
  readonly calledAt: number;
  /** Undefined if the outcome was lost: the call may take effect at any later time, or never. */
  readonly returnedAt?: number | undefined;
  readonly action: Action;
}

/** The checker's verdict; `undecided` if a bound ended the search. */
export type HistoryVerdict =
  | { readonly result: "linearizable"; readonly steps: number }
  | { readonly result: "undecided"; readonly key: string; readonly steps: number }
  | {
      readonly result: "violation";
      readonly key: string;
      /** The smallest history found that no order explains, by the time of the calls. */
      readonly operations: readonly Operation[];
      /** The same as text, one call a line. */
      readonly text: string;
    };

/** Bounds the search of one key; a step takes some microseconds. */
const MAX_STEPS = 1_000_000;
/** Bounds the search for a smaller history that still violates. */
const MAX_REDUCTIONS = 400;

/**
 * Checks whether a history is linearizable: one order of all calls, each between its call and its
 * return, explains every outcome. Values that are written should be unique within a key.
 *
 * - The search is Wing and Gong's, with Lowe's memory of states tried, for each key separately.
 */
export function checkLinearizability(
  history: readonly Operation[],
  maxSteps: number = MAX_STEPS,
): HistoryVerdict {
  let steps = 0;
  let undecided: string | undefined;
  for (const [key, operations] of groupByKey(history)) {
    const verdict = search(operations, maxSteps);
    steps += verdict.steps;
    if (verdict.result === "undecided") undecided ??= key;
    if (verdict.result !== "violation") continue;
    const fewest = reduce(operations, maxSteps);
    return { result: "violation", key, operations: fewest, text: describe(key, fewest) };
  }
  if (undecided !== undefined) return { result: "undecided", key: undecided, steps };
  return { result: "linearizable", steps };
}

function groupByKey(history: readonly Operation[]): Map<string, Operation[]> {
  const byKey = new Map<string, Operation[]>();
  for (const operation of history) {
    const operations = byKey.get(operation.key);
    if (operations) operations.push(operation);
    else byKey.set(operation.key, [operation]);
  }
  return byKey;
}

/** A list of values; equal lists are one object, so that they are compared by identity. */
interface ListState {
  readonly id: number;
  readonly length: number;
  readonly next: Map<string, ListState>;
}

/** All lists of a search, as a tree. */
class ListStates {
  #size = 0;
  readonly empty: ListState = this.#create(0);
  /**
   * The longest list that was seen, if values are only ever appended: the others are its prefixes.
   */
  readonly #longest: readonly string[] | undefined;

  constructor(operations: readonly Operation[]) {
    if (operations.some(({ action }) => action.type !== "append" && action.type !== "read")) return;
    const lists = operations.map(({ action }) => (action.type === "read" ? action.values : []));
    this.#longest = lists.reduce((a, b) => (b.length > a.length ? b : a), []);
  }

  #create(length: number): ListState {
    return { id: this.#size++, length, next: new Map() };
  }

  /** The state after an append; undefined if a list that was seen excludes it. */
  grow(state: ListState, value: string): ListState | undefined {
    const longest = this.#longest;
    if (!longest) return this.append(state, value);
    // No call saw the values after the longest list, so their order makes no difference.
    if (state.length > longest.length) return state;
    if (state.length === longest.length) return this.append(state, UNSEEN);
    return longest[state.length] === value ? this.append(state, value) : undefined;
  }

  append(state: ListState, value: string): ListState {
    let next = state.next.get(value);
    if (!next) {
      next = this.#create(state.length + 1);
      state.next.set(value, next);
    }
    return next;
  }

  of(values: readonly string[]): ListState {
    return values.reduce((state, value) => this.append(state, value), this.empty);
  }
}

/** A call in the search, and in a list of calls and returns by time. */
interface Call {
  readonly action: Action;
  /** For a read: the state that it saw. */
  readonly seen: ListState | undefined;
  /**
   * The index among the calls that returned, or the kind of a lost one: lost calls of a kind are
   * alike.
   */
  readonly place: number;
  readonly returns: boolean;
}

interface Event {
  readonly call: Call;
  readonly isReturn: boolean;
  previous: Event | undefined;
  next: Event | undefined;
  /** For a call: its return. */
  match: Event | undefined;
}

interface SearchResult {
  readonly result: "linearizable" | "violation" | "undecided";
  readonly steps: number;
}

function search(operations: readonly Operation[], maxSteps: number): SearchResult {
  const known = relevant(operations);
  const states = new ListStates(known);
  const head = eventsOf(known, states);
  const order = new SearchedOrder(states.empty);
  let left = countReturns(head);
  let steps = 0;
  let event = head.next;
  while (left > 0) {
    if (++steps > maxSteps) return { result: "undecided", steps };
    if (event && !event.isReturn) {
      const state = apply(states, order.state, event.call);
      if (state && order.push(event, state)) {
        lift(event);
        if (event.call.returns) left--;
        event = head.next;
      } else {
        event = event.next;
      }
      continue;
    }
    // This call had to take effect by now and cannot: the last choice was wrong.
    const undone = order.pop();
    if (!undone) return { result: "violation", steps };
    unlift(undone);
    if (undone.call.returns) left++;
    event = undone.next;
  }
  return { result: "linearizable", steps };
}

/** The state after an action with the known outcome, or undefined if that is impossible. */
function apply(states: ListStates, state: ListState, call: Call): ListState | undefined {
  const { action } = call;
  const isEmpty = state === states.empty;
  switch (action.type) {
    case "read":
      return state === call.seen ? state : undefined;
    case "write":
      return states.append(states.empty, action.value);
    case "append":
      return states.grow(state, action.value);
    case "create":
      if (action.created !== undefined && action.created !== isEmpty) return undefined;
      return isEmpty ? states.append(state, action.value) : state;
    case "replace": {
      const isExpected = state === states.of([action.expected]);
      if (action.replaced !== undefined && action.replaced !== isExpected) return undefined;
      return isExpected ? states.of([action.value]) : state;
    }
    case "remove":
      if (action.removed !== undefined && action.removed === isEmpty) return undefined;
      return states.empty;
  }
}

/** The order under trial, and the states tried before. */
class SearchedOrder {
  state: ListState;
  readonly #stack: { event: Event; before: ListState }[] = [];
  readonly #tried = new Set<string>();
  /** Whether each call that returned is in the order, by index. */
  readonly #done: boolean[] = [];
  /** How many of the lost calls are in the order, by kind. */
  readonly #lost: number[] = [];
  #highest = -1;
  #lowest = 0;

  constructor(state: ListState) {
    this.state = state;
  }

  /** False if the same calls led to the same state before. */
  push(event: Event, state: ListState): boolean {
    this.#mark(event.call, true);
    const key = this.#key(state);
    if (this.#tried.has(key)) {
      this.#mark(event.call, false);
      return false;
    }
    this.#tried.add(key);
    this.#stack.push({ event, before: this.state });
    this.state = state;
    return true;
  }

  pop(): Event | undefined {
    const last = this.#stack.pop();
    if (!last) return undefined;
    this.#mark(last.event.call, false);
    this.state = last.before;
    return last.event;
  }

  #mark({ returns, place }: Call, isDone: boolean): void {
    if (!returns) {
      this.#lost[place] = (this.#lost[place] ?? 0) + (isDone ? 1 : -1);
      return;
    }
    this.#done[place] = isDone;
    this.#highest = Math.max(this.#highest, place);
    if (!isDone) this.#lowest = Math.min(this.#lowest, place);
    while (this.#done[this.#lowest]) this.#lowest++;
  }

  /** Nearly all earlier calls are in the order, so the key lists only the exceptions. */
  #key(state: ListState): string {
    let key = `${state.id}/${this.#lowest}`;
    for (let place = this.#lowest + 1; place <= this.#highest; place++) {
      if (this.#done[place]) key += `,${place}`;
    }
    for (const [kind, count] of this.#lost.entries()) if (count) key += `/${kind}:${count}`;
    return key;
  }
}

/** Replaces every value that no call saw: such values are equivalent. */
const UNSEEN = "\0";

/** Without reads that saw nothing and, where that is sound, lost writes that no call saw. */
function relevant(operations: readonly Operation[]): readonly Operation[] {
  const seen = seenValues(operations);
  const isPlain = onlyPlain(operations);
  return operations.flatMap((operation) => {
    const { returnedAt, action } = operation;
    if (returnedAt !== undefined) return [operation];
    if (action.type === "read") return [];
    if (action.type === "remove" || seen.has(action.value)) return [operation];
    return isPlain ? [] : [{ ...operation, action: { ...action, value: UNSEEN } }];
  });
}

/** True if only outcomes of reads depend on the state. */
function onlyPlain(operations: readonly Operation[]): boolean {
  return operations.every(({ action }) => ["read", "write", "append"].includes(action.type));
}

/** The values that some outcome depends on. */
function seenValues(operations: readonly Operation[]): Set<string> {
  const values = operations.flatMap(({ action }) => {
    if (action.type === "replace") return [action.expected];
    return action.type === "read" ? action.values : [];
  });
  return new Set(values);
}

/** All calls and returns by time, after a sentinel head. */
function eventsOf(operations: readonly Operation[], states: ListStates): Event {
  const timed: { at: number; event: Event }[] = [];
  let returned = 0;
  const kinds = new Map<string, number>();
  for (const { action, calledAt, returnedAt } of operations) {
    const returns = returnedAt !== undefined;
    const seen = action.type === "read" ? states.of(action.values) : undefined;
    const expected = action.type === "replace" ? action.expected : "";
    const kind = `${action.type} ${"value" in action ? action.value : ""} ${expected}`;
    if (!returns && !kinds.has(kind)) kinds.set(kind, kinds.size);
    const call = { action, seen, returns, place: returns ? returned++ : (kinds.get(kind) ?? -1) };
    const end = returns ? createEvent(call, true) : undefined;
    timed.push({ at: calledAt, event: { ...createEvent(call, false), match: end } });
    if (end) timed.push({ at: returnedAt as number, event: end });
  }
  timed.sort((a, b) => a.at - b.at || Number(a.event.isReturn) - Number(b.event.isReturn));
  const none: Call = { action: { type: "remove" }, seen: undefined, returns: false, place: -1 };
  const head = createEvent(none, false);
  let last = head;
  for (const { event } of timed) {
    last.next = event;
    event.previous = last;
    last = event;
  }
  return head;
}

function createEvent(call: Call, isReturn: boolean): Event {
  return { call, isReturn, previous: undefined, next: undefined, match: undefined };
}

function countReturns(head: Event): number {
  let count = 0;
  for (let event = head.next; event; event = event.next) if (event.isReturn) count++;
  return count;
}

/** Takes a call and its return out of the list; they keep their neighbours for `unlift`. */
function lift(event: Event): void {
  for (const gone of [event, event.match]) {
    if (!gone) continue;
    if (gone.previous) gone.previous.next = gone.next;
    if (gone.next) gone.next.previous = gone.previous;
  }
}

function unlift(event: Event): void {
  for (const back of [event.match, event]) {
    if (!back) continue;
    if (back.previous) back.previous.next = back;
    if (back.next) back.next.previous = back;
  }
}

/**
 * The smallest history found that still violates: the shortest prefix, then without removable
 * calls.
 */
function reduce(operations: readonly Operation[], maxSteps: number): readonly Operation[] {
  let fewest = shortestBeginning(operations, maxSteps);
  let reductions = 0;
  const tries = [...fewest].sort((a, b) => Number(isRead(b)) - Number(isRead(a)));
  for (const operation of tries) {
    const rest = fewest.filter((other) => other !== operation);
    if (!canDrop(operation, rest) || ++reductions > MAX_REDUCTIONS) continue;
    if (search(rest, maxSteps).result === "violation") fewest = rest;
  }
  return [...fewest].sort((a, b) => a.calledAt - b.calledAt);
}

function isRead({ action }: Operation): boolean {
  return action.type === "read";
}

/** True if a linearizable history stays one without the operation. */
function canDrop(operation: Operation, rest: readonly Operation[]): boolean {
  const { action } = operation;
  if (action.type === "read") return true;
  if (action.type !== "write" && action.type !== "append") return false;
  return onlyPlain(rest) && !seenValues(rest).has(action.value);
}

/** Every prefix of a linearizable history is one, so the shortest bad one can be bisected. */
function shortestBeginning(
  operations: readonly Operation[],
  maxSteps: number,
): readonly Operation[] {
  const ends = operations
    .map(({ returnedAt }) => returnedAt)
    .filter((at) => at !== undefined)
    .sort((a, b) => a - b);
  let low = 0;
  let high = ends.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    const beginning = until(operations, ends[middle] as number);
    if (search(beginning, maxSteps).result === "violation") high = middle;
    else low = middle + 1;
  }
  return until(operations, ends[high] as number);
}

/** The history as it was known at a time. */
function until(operations: readonly Operation[], at: number): Operation[] {
  return operations
    .filter(({ calledAt }) => calledAt <= at)
    .map((operation) => {
      const { returnedAt, action } = operation;
      if (returnedAt === undefined || returnedAt <= at) return operation;
      return { ...operation, returnedAt: undefined, action: forgetOutcome(action) };
    })
    .filter(({ returnedAt, action }) => returnedAt !== undefined || action.type !== "read");
}

function forgetOutcome(action: Action): Action {
  if (action.type === "create") return { type: "create", value: action.value };
  if (action.type === "replace") {
    return { type: "replace", expected: action.expected, value: action.value };
  }
  return action.type === "remove" ? { type: "remove" } : action;
}

function describe(key: string, operations: readonly Operation[]): string {
  const lines = operations.map(({ client, calledAt, returnedAt, action }) => {
    const end = returnedAt === undefined ? "outcome lost" : `returned at ${returnedAt}`;
    return `  ${client}: ${describeAction(action)}, called at ${calledAt}, ${end}`;
  });
  return [`no order explains these ${operations.length} calls on ${key}:`, ...lines].join("\n");
}

function describeAction(action: Action): string {
  switch (action.type) {
    case "read":
      return `read [${action.values.join(" ")}]`;
    case "create":
      return `create ${action.value} -> ${action.created ?? "?"}`;
    case "replace":
      return `replace ${action.expected} by ${action.value} -> ${action.replaced ?? "?"}`;
    case "remove":
      return `remove -> ${action.removed ?? "?"}`;
    default:
      return `${action.type} ${action.value}`;
  }
}
