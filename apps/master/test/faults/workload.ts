import { setTimeout as delay } from "node:timers/promises";
import { seededRandom } from "@heddle/base/random";
import { eventually } from "@heddle/base/testing/eventually";
import { checkLinearizability, type Operation } from "@heddle/simulation/linearizability";

/** The clients' targets: the masters' present URLs, and an administrator's key. */
export interface WorkloadEndpoint {
  urls(): readonly string[];
  readonly adminKey: string;
}

export interface WorkloadOptions {
  readonly seed: number;
  readonly clients?: number;
  /** Between two calls of one client. */
  readonly pauseMs?: number;
}

/** The outcome of one attempt: an answer, or unknown. */
type Attempt =
  | { readonly known: true; readonly status: number; readonly body: Fields; readonly etag: number }
  | { readonly known: false };
type Fields = Record<string, unknown>;

type Known = Extract<Attempt, { known: true }>;

/** A change as it is sent, equal each time. */
interface Change {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly headers?: Record<string, string>;
  readonly body: unknown;
}

interface Write {
  readonly setting: string;
  readonly value: number;
  /** Undefined for an unconditional write. */
  readonly expected?: { readonly version: number; readonly value: number } | undefined;
}

/** Any settings whose bounds are wide enough for every run. */
const REGISTERS = ["max_concurrent_jobs", "job_timeout"];
const ATTEMPT_MS = 1_500;
/** Between two calls of a client while no test waits for calls but for a fault's consequences. */
const CALM_PAUSE_MS = 60;
/** After the end, a call without an outcome counts as lost after this. */
const LAST_WORD_MS = 20_000;

/**
 * Clients that read, write, and compare-and-set settings, and create API keys, over HTTP, each at
 * any master. A change with unknown outcome is retried under its Idempotency-Key until it is known:
 * so every accepted change must show exactly once. `check` checks the history.
 */
export class Workload {
  readonly history: Operation[] = [];
  /** Names of keys with acknowledged creation, and of all requested ones. */
  readonly created = new Set<string>();
  readonly asked = new Set<string>();
  /** Versions from acknowledged writes, by setting. */
  readonly #versions = new Map<string, number[]>();
  readonly #lost = new Map<string, number>();
  readonly #faults: string[] = [];
  readonly #target: WorkloadEndpoint;
  readonly #options: WorkloadOptions;
  #running: Promise<void>[] = [];
  #nextValue = 1;
  #nextCall = 0;
  /** How many wait for progress. */
  #awaited = 0;
  #starts = 0;
  #stopAtMs = Number.NEGATIVE_INFINITY;
  /** Answered changes, which may be repeated. */
  readonly #answered: { change: Change; reply: Known }[] = [];
  replayed = 0;
  retried = 0;

  constructor(target: WorkloadEndpoint, options: WorkloadOptions) {
    this.#target = target;
    this.#options = options;
  }

  start(): this {
    const { clients = 5 } = this.#options;
    this.#stopAtMs = Number.POSITIVE_INFINITY;
    this.#starts++;
    this.#running = Array.from({ length: clients }, (_, client) => this.#client(client));
    return this;
  }

  /** After a stop, restarts the clients with a new history from the present state. */
  async resume(): Promise<void> {
    // A call without an outcome may still take effect.
    const begun = this.history.filter(({ returnedAt }) => returnedAt === undefined);
    for (const key of REGISTERS) {
      const calledAt = performance.now();
      const path = `/cluster/settings/${key}?consistency=strong`;
      const { version, value } = await this.#get(this.#target.urls()[0] ?? "", path);
      const found = { client: "before", key, calledAt, returnedAt: performance.now() };
      const action = { type: "write", value: String(value) } as const;
      if (version !== 0) begun.push({ ...found, action });
    }
    this.history.splice(0, this.history.length, ...begun);
    this.start();
  }

  /** Resolves when this many more calls have an outcome; fails when none has one. */
  async progress(calls: number): Promise<void> {
    const wanted = this.history.length + calls;
    this.#awaited++;
    try {
      while (this.history.length < wanted && this.#faults.length === 0) {
        const before = this.history.length;
        const hasMore = () => this.history.length > before || this.#faults.length > 0;
        await eventually(hasMore, `a call of ${wanted - before} has an outcome`);
      }
    } finally {
      this.#awaited--;
    }
  }

  /** Resolves when every client has ended its last call. */
  async stop(): Promise<void> {
    this.#stopAtMs = performance.now();
    await Promise.all(this.#running);
  }

  /** Throws if the history is not linearizable, or an answer is invalid. */
  check(): void {
    if (this.#faults.length > 0) throw new Error(this.#faults.join("\n"));
    const verdict = checkLinearizability(this.history);
    if (verdict.result === "violation") throw new Error(verdict.text);
    if (verdict.result === "undecided") throw new Error(`too many calls to judge: ${verdict.key}`);
  }

  /** Throws unless a master's settings and keys show every accepted change exactly once. */
  async checkMaster(url: string): Promise<void> {
    for (const setting of REGISTERS) {
      const path = `/cluster/settings/${setting}?consistency=strong`;
      const { version } = (await this.#get(url, path)) as { version: number };
      const versions = this.#versions.get(setting) ?? [];
      const most = versions.length + (this.#lost.get(setting) ?? 0);
      const isOnce = new Set(versions).size === versions.length;
      const isThere = versions.every((each) => each >= 1 && each <= version);
      if (isOnce && isThere && version >= versions.length && version <= most) continue;
      const reply = `${versions.length} accepted, ${most - versions.length} lost`;
      throw new Error(`${url}: ${setting} has version ${version} after ${reply} changes`);
    }
    const names = await this.#keyNames(url);
    const own = names.filter((name) => name.startsWith("append-"));
    const missing = [...this.created].filter((name) => !own.includes(name));
    const twice = own.filter((name, at) => own.indexOf(name) !== at);
    const strange = own.filter((name) => !this.asked.has(name));
    if (missing.length + twice.length + strange.length === 0) return;
    throw new Error(`${url}: keys lost ${missing}; twice ${twice}; never asked for ${strange}`);
  }

  async #keyNames(url: string): Promise<string[]> {
    const names: string[] = [];
    for (let cursor = ""; ; ) {
      const page = await this.#get(url, `/keys?consistency=strong&limit=1000${cursor}`);
      const { data, next_cursor: next } = page as {
        data: { name: string }[];
        next_cursor: string | null;
      };
      names.push(...data.map(({ name }) => name));
      if (next === null) return names;
      cursor = `&cursor=${next}`;
    }
  }

  /** Repeats a read while the leader changes, as it may at any time on a stalled machine. */
  async #get(url: string, path: string): Promise<Fields> {
    const headers = { authorization: `Bearer ${this.#target.adminKey}` };
    let [status, text] = [0, ""];
    const isAnswered = async () => {
      const reply = await fetch(`${url}/api/v1${path}`, { headers });
      [status, text] = [reply.status, await reply.text()];
      return status !== 503 && status !== 408;
    };
    await eventually(isAnswered, () => `${path} is answered: ${text}`);
    if (status !== 200) throw new Error(`${path}: ${status} ${text}`);
    return JSON.parse(text) as Fields;
  }

  async #client(number: number): Promise<void> {
    const random = seededRandom(this.#options.seed * 1_000 + this.#starts * 100 + number);
    const seen = new Map<string, { version: number; value: number }>();
    while (performance.now() < this.#stopAtMs) {
      const call = this.#nextCall++;
      const client = `c${number}`;
      const setting = REGISTERS[Math.floor(random() * REGISTERS.length)] as string;
      const dice = random();
      if (dice < 0.4) await this.#read(client, setting, seen, random);
      else if (dice < 0.85) {
        const expected = dice < 0.6 ? undefined : seen.get(setting);
        const write = { setting, value: this.#nextValue++, expected };
        await this.#write(`${client}-${call}`, write, seen, random);
      } else if (dice < 0.95) await this.#append(`append-${client}-${call}`, random);
      else await this.#repeat(random);
      const { pauseMs = this.#awaited > 0 ? 10 : CALM_PAUSE_MS } = this.#options;
      await delay(pauseMs);
    }
  }

  async #read(
    client: string,
    setting: string,
    seen: Map<string, { version: number; value: number }>,
    random: () => number,
  ): Promise<void> {
    const calledAt = performance.now();
    const path = `/cluster/settings/${setting}?consistency=strong`;
    const attempt = await this.#attempt({ method: "GET", path }, random);
    if (!attempt.known) return; // A read without an answer has no effect.
    const { version, value } = attempt.body as { version: number; value: number };
    seen.set(setting, { version, value });
    const values = version === 0 ? [] : [String(value)];
    const returnedAt = performance.now();
    this.history.push({
      client,
      key: setting,
      calledAt,
      returnedAt,
      action: { type: "read", values },
    });
  }

  async #write(
    id: string,
    write: Write,
    seen: Map<string, { version: number; value: number }>,
    random: () => number,
  ): Promise<void> {
    const { setting, value, expected } = write;
    const calledAt = performance.now();
    const headers: Record<string, string> = {};
    if (expected) headers["if-match"] = `"${expected.version}"`;
    const path = `/cluster/settings/${setting}`;
    const change = { id, method: "PUT", path, headers, body: { value } };
    const reply = await this.#untilKnown(change, random);
    const done = reply && reply.status === 200;
    if (reply && !done && reply.status !== 412) return this.#fault(id, reply);
    if (!reply) this.#lost.set(setting, (this.#lost.get(setting) ?? 0) + 1);
    if (done) {
      seen.set(setting, { version: reply.etag, value });
      this.#versions.set(setting, [...(this.#versions.get(setting) ?? []), reply.etag]);
    } else seen.delete(setting);
    const returnedAt = reply ? performance.now() : undefined;
    const client = id.split("-")[0] as string;
    const action = actionOf(write, reply ? done : undefined);
    this.history.push({ client, key: setting, calledAt, returnedAt, action });
  }

  async #append(name: string, random: () => number): Promise<void> {
    this.asked.add(name);
    const change = { id: name, method: "POST", path: "/keys", body: { name } };
    const reply = await this.#untilKnown(change, random);
    if (reply && reply.status !== 200) return this.#fault(name, reply);
    if (reply) this.created.add(name);
  }

  /** Repeats a change that was answered earlier, possibly under another leader. */
  async #repeat(random: () => number): Promise<void> {
    const known = this.#answered[Math.floor(random() * this.#answered.length)];
    if (!known) return;
    const again = await this.#attempt(this.#sent(known.change), random);
    if (again.known) this.#expectSame(known.change, known.reply, again);
  }

  /** Sometimes sends it to two masters at once. */
  async #sendOnceOrTwice(change: Change, random: () => number): Promise<Attempt> {
    if (random() < 0.8) return this.#attempt(this.#sent(change), random);
    const both = [this.#sent(change), this.#sent(change)];
    const [one, other] = await Promise.all(both.map((each) => this.#attempt(each, random)));
    if (one?.known && other?.known) this.#expectSame(change, one, other);
    return (one?.known ? one : other) ?? { known: false };
  }

  #expectSame({ id }: Change, one: Known, other: Known): void {
    if (sameAnswer(one, other)) return;
    this.#faults.push(
      `${id} was answered ${JSON.stringify(one)} and then ${JSON.stringify(other)}`,
    );
  }

  #sent(change: Change): Change {
    const key = `${this.#options.seed}-${change.id}`;
    return { ...change, headers: { ...change.headers, "idempotency-key": key } };
  }

  #fault(id: string, attempt: Attempt): void {
    this.#faults.push(`${id} was answered ${JSON.stringify(attempt)}`);
  }

  /** Sends a change until its outcome is known; undefined if the run ends before. */
  async #untilKnown(change: Change, random: () => number): Promise<Known | undefined> {
    while (performance.now() < this.#stopAtMs + LAST_WORD_MS) {
      const reply = await this.#sendOnceOrTwice(change, random);
      if (reply.known) {
        this.#answered.push({ change, reply });
        return reply;
      }
      this.retried++;
      await delay(50 + random() * 100);
    }
    return undefined;
  }

  /** One request to any master. Answers and refusals without a change have a known outcome. */
  async #attempt(
    { method, path, headers, body }: Omit<Change, "id" | "body"> & { body?: unknown },
    random: () => number,
  ): Promise<Attempt> {
    const urls = this.#target.urls();
    const url = urls[Math.floor(random() * urls.length)];
    if (url === undefined) return { known: false };
    try {
      const reply = await fetch(`${url}/api/v1${path}`, {
        method,
        headers: {
          authorization: `Bearer ${this.#target.adminKey}`,
          "content-type": "application/json",
          ...headers,
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(ATTEMPT_MS),
      });
      const fields = (await reply.json()) as Fields;
      // 408: on a loaded machine the request itself may arrive too late.
      if (reply.status === 503 || reply.status === 408) return { known: false };
      if (reply.headers.get("idempotency-replayed")) this.replayed++;
      const etag = Number(/^"(\d+)"$/.exec(reply.headers.get("etag") ?? "")?.[1]);
      if (method === "GET" && reply.status !== 200) {
        this.#faults.push(`a read was answered ${reply.status} ${JSON.stringify(fields)}`);
        return { known: false };
      }
      return { known: true, status: reply.status, body: fields, etag };
    } catch {
      return { known: false }; // No connection, a broken one, or no answer in time.
    }
  }
}

/** Whether the answers are equal, apart from their request ids. */
function sameAnswer(one: Known, other: Known): boolean {
  const text = ({ status, etag, body }: Known) =>
    JSON.stringify([status, etag, { ...body, request_id: undefined }]);
  return text(one) === text(other);
}

/** A setting's value identifies its version, because no value is written twice. */
function actionOf({ value, expected }: Write, done: boolean | undefined): Operation["action"] {
  const text = String(value);
  if (!expected) return { type: "write", value: text };
  if (expected.version === 0) return { type: "create", value: text, created: done };
  return { type: "replace", expected: String(expected.value), value: text, replaced: done };
}
