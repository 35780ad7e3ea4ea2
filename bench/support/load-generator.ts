import { setTimeout } from "node:timers/promises";
import { ChatStream } from "./chat-stream.ts";
import { HttpConnection, type Origin, postBytes } from "./http-connection.ts";
import { benchRandom, type Summary, summarizeSamples } from "./statistics.ts";

/** A closed loop: each of `concurrency` clients sends its next request when the last has ended. */
export interface LoadSpec {
  readonly origin: Origin;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly stream: boolean;
  readonly concurrency: number;
  /** An open loop: this many requests a second begin at random times; they wait for a free client. */
  readonly openRate?: number | undefined;
  readonly warmupMs: number;
  readonly durationMs: number;
  /** The expected text of every answer, as words with a space after each. */
  readonly expectedText: string;
}

/** The results between the warm-up and the end. */
export interface LoadResult {
  readonly requests: number;
  /** Includes those of the warm-up and the tail, over which the server's CPU time is divided. */
  readonly allRequests: number;
  readonly failures: number;
  readonly firstFailure: string;
  readonly requestsPerSecond: number;
  /** From the request's first byte sent, in an open loop from its turn, to the answer's last one. */
  readonly latencyMs: Summary;
  /** To the first text of a stream. */
  readonly firstTextMs: Summary;
  /** Received words of the expected text, each a delta of the engine. */
  readonly deltasPerSecond: number;
  readonly framesPerSecond: number;
  /** Missing words. */
  readonly lostDeltas: number;
  /** CPU time of the generator per second. */
  readonly generatorCpu: number;
}

class LoadRun {
  readonly #spec: LoadSpec;
  readonly #request: Buffer;
  readonly #words: number;
  readonly #measureFrom: number;
  readonly #measureTo: number;
  readonly #latencies: number[] = [];
  readonly #firstTexts: number[] = [];
  readonly #random = benchRandom(1);
  #nextDue = performance.now();
  #allRequests = 0;
  #failures = 0;
  #firstFailure = "";
  #frames = 0;
  #deltas = 0;
  #lost = 0;

  constructor(spec: LoadSpec) {
    this.#spec = spec;
    this.#request = postBytes(spec);
    this.#words = spec.expectedText.split(" ").length - 1;
    this.#measureFrom = performance.now() + spec.warmupMs;
    this.#measureTo = this.#measureFrom + spec.durationMs;
  }

  async result(): Promise<LoadResult> {
    const cpuAtStart = process.cpuUsage();
    const startedAt = performance.now();
    await Promise.all(Array.from({ length: this.#spec.concurrency }, () => this.#client()));
    const cpu = process.cpuUsage(cpuAtStart);
    const seconds = this.#spec.durationMs / 1000;
    return {
      requests: this.#latencies.length,
      allRequests: this.#allRequests,
      failures: this.#failures,
      firstFailure: this.#firstFailure,
      requestsPerSecond: this.#latencies.length / seconds,
      latencyMs: summarizeSamples(this.#latencies),
      firstTextMs: summarizeSamples(this.#firstTexts),
      deltasPerSecond: this.#deltas / seconds,
      framesPerSecond: this.#frames / seconds,
      lostDeltas: this.#lost,
      generatorCpu: (cpu.user + cpu.system) / 1000 / (performance.now() - startedAt),
    };
  }

  /** Ends with the answer that it awaits when the time is up. */
  async #client(): Promise<void> {
    const connection = new HttpConnection(this.#spec.origin);
    while (performance.now() < this.#measureTo) {
      await this.#exchange(connection, await this.#turn());
    }
    connection.close();
  }

  /** The time of the client's next request. What the timer comes too late is none of the server's. */
  async #turn(): Promise<number> {
    const { openRate } = this.#spec;
    if (openRate === undefined) return performance.now();
    const due = this.#nextDue;
    this.#nextDue += (-Math.log(1 - this.#random()) * 1000) / openRate;
    const ms = due - performance.now();
    if (ms <= 0) return due;
    await setTimeout(ms);
    return performance.now();
  }

  #exchange(connection: HttpConnection, sentAt: number): Promise<void> {
    const answer = this.#spec.stream ? new StreamedAnswer() : new WholeAnswer();
    return new Promise((resolve) => {
      connection.send(this.#request, {
        body: (bytes) => answer.push(bytes),
        end: (status) => resolve(this.#record(sentAt, answer, status)),
        fail: (error) => resolve(this.#fail(error.message)),
      });
    });
  }

  #record(sentAt: number, answer: StreamedAnswer | WholeAnswer, status: number): void {
    const now = performance.now();
    this.#allRequests += 1;
    if (now < this.#measureFrom || now > this.#measureTo) return;
    if (status !== 200) {
      this.#fail(`status ${status}: ${answer.raw().slice(0, 300)}`);
      return;
    }
    const text = answer.text();
    const words = text === this.#spec.expectedText ? this.#words : text.split(" ").length - 1;
    this.#latencies.push(now - sentAt);
    if (answer.firstTextAt > 0) this.#firstTexts.push(answer.firstTextAt - sentAt);
    this.#deltas += words;
    this.#lost += this.#words - words;
    this.#frames += answer.frames();
    if (!answer.complete()) this.#fail("a stream ended without [DONE]");
    else if (text !== this.#spec.expectedText) this.#fail(`the text differs: ${text}`);
  }

  #fail(message: string): void {
    this.#failures += 1;
    this.#firstFailure ||= message;
  }
}

class WholeAnswer {
  readonly firstTextAt = 0;
  readonly #parts: Buffer[] = [];

  push(bytes: Buffer): void {
    this.#parts.push(bytes);
  }

  raw(): string {
    return Buffer.concat(this.#parts).toString();
  }

  text(): string {
    const body = JSON.parse(this.raw()) as { choices: { message: { content: string } }[] };
    return body.choices[0]?.message.content ?? "";
  }

  frames(): number {
    return 1;
  }

  complete(): boolean {
    return true;
  }
}

class StreamedAnswer {
  firstTextAt = 0;
  readonly #parts: Buffer[] = [];
  readonly #stream = new ChatStream(() => {
    this.firstTextAt ||= performance.now();
  });

  push(bytes: Buffer): void {
    if (this.#stream.frames === 0) this.#parts.push(Buffer.from(bytes));
    this.#stream.push(bytes);
  }

  raw(): string {
    return Buffer.concat(this.#parts).toString();
  }

  text(): string {
    return this.#stream.text;
  }

  frames(): number {
    return this.#stream.frames;
  }

  complete(): boolean {
    return this.#stream.done && this.#stream.error === undefined;
  }
}

const spec = JSON.parse(process.argv[2] ?? "{}") as LoadSpec;
console.log(JSON.stringify(await new LoadRun(spec).result()));
