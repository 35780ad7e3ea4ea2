import type { Duplex } from "node:stream";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { FrameSplitter } from "./frame-splitter.ts";
import { JoinedStreams } from "./joined-streams.ts";
import { moveCache } from "./move-cache.ts";
import { frameEpoch, frameMicros, lostFrame, returnedFrame } from "./stage-frame.ts";
import type { StageTimes } from "./stage-times.ts";

/**
 * The last resort: a prompt's chunk takes minutes in a large model. Workers end processes that hang, and
 * the stream of a worker that does not answer ends, within seconds.
 */
const SILENCE_MS = 600_000;
/** A decode ends, and a part of a cache comes, within this time where the stage is alive. */
const MOVE_MS = 10_000;
/** Bytes of held frames, from which on no further ones are read of the last stage. */
const MAX_HELD_BYTES = 4 * 2 ** 20;

export interface StageHubOptions {
  /**
   * Opens streams to the stages before the last, in order; called again after each loss. The signal
   * aborts when the last stage is gone. A rejection ends the last stage.
   */
  readonly connect: (signal: AbortSignal) => Promise<readonly Duplex[]>;
  /** The same where some stages have moved, with the open streams of the others. */
  readonly connectMoved?: (() => Promise<readonly Duplex[]>) | undefined;
  /** Called when all stages are joined, and when one was lost. */
  readonly onChange?: ((isJoined: boolean) => void) | undefined;
  readonly silenceMs?: number | undefined;
  /** Gets the times of the last stage. */
  readonly times?: StageTimes | undefined;
}

/**
 * Joins the last stage of a model to the others: frames go from it through the others, in their
 * order, and back.
 *
 * - Where a stage is lost, or answers nothing for long, the last one is notified that the epoch has
 *   ended. It begins another one, which waits here until all stages have joined again.
 * - A stage that moves to another worker takes its cache along where it can, and the epoch
 *   continues.
 * - A ring, where each stage sends to the next by itself, would take N ways in place of 2N - 2.
 *   With 4 stages it was faster for one sequence at 20 ms a way, and not measurably at 5 ms or with
 *   16 sequences.
 */
export class StageHub {
  readonly #last: Duplex;
  readonly #options: StageHubOptions;
  readonly #ended = new AbortController();
  readonly #sent = new FrameSplitter();
  #returned = new FrameSplitter();
  #joined: JoinedStreams | undefined;
  /** Frames of the last stage that were received while the others were not joined, or moved. */
  #held: Buffer[] = [];
  readonly #moves = new SerialQueue();
  /** Called when no frame is under way; set while a stage moves. */
  #onQuiet: (() => void) | undefined;
  /** The epochs of the latest frame that was sent and of the latest lost one; 0 for none. */
  #epoch = 0;
  #lostEpoch = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Frames that the stages have. */
  #underWay = 0;
  /** When the only one of them was sent; undefined where another is, or was, under way with it. */
  #aloneSinceMs: number | undefined;

  /** `last` carries the frames of the last stage; it is closed where it cannot continue. */
  constructor(last: Duplex, options: StageHubOptions) {
    this.#last = last;
    this.#options = options;
    last.on("data", (bytes: Uint8Array) => this.#guarded(() => this.#onSent(bytes)));
    last.on("error", () => undefined);
    last.once("close", () => this.#end());
    this.#connect();
  }

  #connect(): void {
    this.#options.connect(this.#ended.signal).then(
      (stages) => this.#join(stages),
      () => this.#last.destroy(),
    );
  }

  /** Some stages have moved to other workers. */
  move(): void {
    void this.#moves.run(() => this.#move());
  }

  /** Moved stages give their caches to the new ones; else all join again. */
  async #move(): Promise<void> {
    const before = this.#joined;
    if (!before) return;
    let after: readonly Duplex[] = [];
    try {
      after = (await this.#options.connectMoved?.()) ?? [];
      const isMoved =
        after.length === before.stages.length && (await this.#moveCaches(before, after));
      if (!isMoved || this.#joined !== before)
        throw new Error("a stage has moved without its cache");
      this.#connectStreams(after);
      closeAll(before.stages.filter((stage) => !after.includes(stage)));
    } catch {
      closeAll(after);
      this.#lose(before);
    } finally {
      this.#onQuiet = undefined;
      if (this.#joined) this.#sendHeld();
    }
  }

  /** No frame is under way meanwhile. */
  async #moveCaches(before: JoinedStreams, after: readonly Duplex[]): Promise<boolean> {
    const quiet = new Promise<void>((resolve) => {
      this.#onQuiet = resolve;
      if (this.#underWay === 0) resolve();
    });
    const isQuiet = await resolvesWithin(quiet, MOVE_MS);
    if (!isQuiet || this.#joined !== before) return false;
    before.part();
    const moves = await Promise.allSettled(
      before.stages.map((from, at) => {
        const to = after[at]!;
        return from === to || moveCache(from, to, MOVE_MS);
      }),
    );
    return moves.every((move) => move.status === "fulfilled" && move.value);
  }

  #join(stages: readonly Duplex[]): void {
    if (this.#ended.signal.aborted) {
      closeAll(stages);
      return;
    }
    this.#connectStreams(stages);
    if (!this.#joined) return;
    this.#options.onChange?.(true);
    this.#sendHeld();
  }

  #connectStreams(stages: readonly Duplex[]): void {
    this.#joined?.release();
    this.#returned = new FrameSplitter();
    const joined = new JoinedStreams(stages, {
      onData: (bytes) => this.#guarded(() => this.#onReturned(bytes)),
      onDrain: () => this.#regulate(),
      onLost: () => this.#lose(joined),
    });
    this.#joined = joined;
    if (stages.some(({ destroyed }) => destroyed)) this.#lose(joined);
  }

  #sendHeld(): void {
    const held = this.#held;
    this.#held = [];
    for (const frame of held) this.#send(frame);
    this.#regulate();
  }

  /** The last stage waits while the first one takes no more, or much is held. */
  #regulate(): void {
    const heldBytes = this.#held.reduce((sum, { length }) => sum + length, 0);
    if (this.#joined?.isFull || heldBytes >= MAX_HELD_BYTES) this.#last.pause();
    else this.#last.resume();
  }

  /** Nothing of a lost stage's epoch returns. */
  #lose(lost: JoinedStreams): void {
    if (this.#joined !== lost) return;
    this.#joined = undefined;
    lost.release();
    clearTimeout(this.#timer);
    this.#underWay = 0;
    this.#onQuiet?.();
    this.#options.times?.restart();
    closeAll(lost.stages);
    if (this.#ended.signal.aborted) return;
    if (this.#epoch !== this.#lostEpoch) {
      this.#lostEpoch = this.#epoch;
      this.#last.write(lostFrame(this.#epoch));
    }
    this.#held = this.#held.filter((frame) => frameEpoch(frame) !== this.#lostEpoch);
    this.#regulate();
    this.#options.onChange?.(false);
    this.#connect();
  }

  #onSent(bytes: Uint8Array): void {
    for (const frame of this.#sent.push(bytes)) {
      // Sent before the last stage has read that it is lost.
      if (frameEpoch(frame) === this.#lostEpoch) continue;
      if (this.#joined && !this.#onQuiet) this.#send(frame);
      else this.#held.push(frame);
    }
    this.#regulate();
  }

  #send(frame: Buffer): void {
    this.#epoch = frameEpoch(frame);
    const joined = this.#joined;
    if (!joined) return;
    // The write may wake the stage on this core, before it returns.
    const nowMs = performance.now();
    joined.write(frame);
    this.#options.times?.left(nowMs);
    this.#aloneSinceMs = this.#underWay === 0 ? nowMs : undefined;
    if (++this.#underWay === 1) this.#expect(joined);
  }

  /** A frame comes back in time. */
  #expect(joined: JoinedStreams): void {
    clearTimeout(this.#timer);
    const silenceMs = this.#options.silenceMs ?? SILENCE_MS;
    this.#timer = setTimeout(() => this.#lose(joined), silenceMs).unref();
  }

  #onReturned(bytes: Uint8Array): void {
    for (const frame of this.#returned.push(bytes)) {
      clearTimeout(this.#timer);
      if (--this.#underWay > 0 && this.#joined) this.#expect(this.#joined);
      if (this.#underWay === 0) this.#onQuiet?.();
      this.#timed(frame);
      if (frameEpoch(frame) !== this.#lostEpoch) this.#last.write(returnedFrame(frame));
    }
  }

  /** What was not computing was on the way: to each stage and back. */
  #timed(frame: Buffer): void {
    const { times } = this.#options;
    const nowMs = performance.now();
    const ways = 2 * (this.#joined?.stages.length ?? 0);
    const sentMs = this.#aloneSinceMs;
    if (sentMs !== undefined) times?.hopped(ways, nowMs - sentMs - frameMicros(frame) / 1_000);
    this.#aloneSinceMs = undefined;
    times?.arrived(nowMs);
  }

  /** Bytes that are no frames end the last stage. */
  #guarded(take: () => void): void {
    try {
      take();
    } catch {
      this.#last.destroy();
    }
  }

  #end(): void {
    this.#ended.abort();
    clearTimeout(this.#timer);
    if (this.#joined) closeAll(this.#joined.stages);
  }
}

function closeAll(streams: readonly Duplex[]): void {
  for (const stream of streams) stream.destroy();
}
