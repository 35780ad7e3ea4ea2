import { writeSync } from "node:fs";
import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { toAppError } from "@heddle/base/errors";
import type { EngineEvent, EngineFailure } from "@heddle/contracts/engine";
import { ChatTemplate } from "../../text/chat-template.ts";
import { REASONING_TAGS, reasoningStyleOf } from "../../text/reasoning-style.ts";
import { chooseTemplate } from "../../text/template-choice.ts";
import { openBindings } from "../native/bindings.ts";
import { findNativeLibrary } from "../native/native-library.ts";
import {
  type ChildLoad,
  type ChildMessage,
  type ChildStart,
  EVENTS_FD,
  type ParentMessage,
} from "../protocol/child-protocol.ts";
import { EventFrameWriter } from "../protocol/event-frames.ts";
import { StepRing, stepRingMemory } from "../protocol/step-ring.ts";
import type {
  ThreadCommand,
  ThreadEvent,
  ThreadLoad,
  ThreadReady,
  ThreadStart,
  ThreadStep,
} from "../protocol/thread-messages.ts";
import { PromptReader } from "../tokenizing/prompt-reader.ts";
import { markTokens, parsedTokens } from "../tokenizing/vocabulary.ts";
import { GrammarBook } from "./grammar-book.ts";
import { LongPrompts } from "./long-prompts.ts";
import { RequestBook } from "./request-book.ts";

/** How old the reported memory figure may be. */
const RESIDENT_MAX_AGE_MS = 500;

/**
 * The main thread of an engine process: one model, one engine thread. It takes requests from its
 * parent, turns text into tokens and back, and sends at most one message per step. It dies with its
 * parent and when the engine thread fails, since native state cannot be repaired.
 */
class EngineProcess {
  readonly #start: ChildStart;
  readonly #wake = new SharedArrayBuffer(4);
  readonly #wakeWord = new Int32Array(this.#wake);
  readonly #steps: StepRing;
  readonly #frames = new EventFrameWriter();
  readonly #thread: Worker;
  #book: RequestBook | undefined;
  #kvTokens = 0;
  #maxSequences = 0;
  #threadLoad: ThreadLoad | undefined;
  #resident = { bytes: 0, takenMs: Number.NEGATIVE_INFINITY };

  constructor(start: ChildStart) {
    this.#start = start;
    const url = new URL(
      `../engine-thread/engine-thread${extname(import.meta.url)}`,
      import.meta.url,
    );
    const { maxQueued: _, chatTemplate: __, ...limits } = start;
    const steps = stepRingMemory();
    this.#steps = new StepRing(steps);
    const workerData: ThreadStart = { ...limits, wake: this.#wake, steps };
    this.#thread = new Worker(url, { workerData });
    this.#thread.on("message", (event: ThreadEvent) => this.#take(event));
    this.#thread.on("error", (error) => die(failureOf(error)));
    // It never ends by itself; where it failed, the parent has the reason already.
    this.#thread.on("exit", (code) => {
      die({ code: "engine_failed", message: `the engine thread ended with code ${code}` });
    });
  }

  handle(message: ParentMessage): void {
    if (message.kind === "submit") {
      this.#book?.submit(message.id, message.request, message.options);
    } else if (message.kind === "cancel") {
      this.#book?.cancel(message.id);
    }
  }

  #take(event: ThreadEvent): void {
    if (typeof event === "number") {
      this.#step(this.#steps.read(event));
      return;
    }
    switch (event.kind) {
      case "ready":
        try {
          this.#ready(event);
        } catch (error) {
          die(failureOf(error));
        }
        return;
      case "fatal":
        die(event.error);
        return;
      case "step":
        this.#step(event);
        return;
      default:
        event satisfies never;
    }
  }

  #step(step: ThreadStep): void {
    this.#threadLoad = step.load;
    this.#emit(this.#book?.step(step) ?? []);
  }

  /**
   * Writes synchronously and in full: a parent that does not read blocks this thread, so no frames
   * pile up. Meanwhile the engine thread's steps wait in its ring and its messages.
   */
  #emit(events: readonly EngineEvent[]): void {
    const frame = this.#frames.frame(events, this.#load());
    try {
      for (let at = 0; at < frame.length; ) at += writeSync(EVENTS_FD, frame, at);
    } catch {
      // The other end is gone, and with it the parent that this process works for.
      end();
    }
  }

  #ready(event: ThreadReady): void {
    const { vocabulary, info } = event;
    // A second handle on the same libraries: this thread tokenizes with the model's vocabulary.
    const { llama } = openBindings(findNativeLibrary(this.#start.device));
    this.#kvTokens = event.kvTokens;
    this.#maxSequences = event.maxSequences;
    this.#threadLoad = event.load;
    const { contextTokens } = info;
    const template = chooseTemplate(
      { option: this.#start.chatTemplate, file: event.chatTemplate },
      new Set(parsedTokens(vocabulary).map(([text]) => text)),
    );
    const form = new ChatTemplate(template.source, vocabulary).callForm;
    const marks = markTokens(vocabulary, [...form.tokens, ...REASONING_TAGS]);
    const style = { form, reasoning: reasoningStyleOf(template.source), marks };
    const rules = { table: vocabulary, chatTemplate: template.source, contextTokens };
    const { device } = this.#start;
    const onFatal = (error: unknown) => die(failureOf(error));
    const command = (sent: ThreadCommand) => this.#command(sent);
    this.#book = new RequestBook({
      table: vocabulary,
      abilities: event.abilities,
      reader: new PromptReader(llama, rules),
      longPrompts: new LongPrompts({ device, rules }, onFatal),
      grammars: new GrammarBook({ table: vocabulary, style }, command, onFatal),
      limits: { ...this.#start, contextTokens },
      deterministic: this.#start.deterministic,
      command,
      emit: (events) => this.#emit(events),
    });
    const load = this.#load();
    send({ kind: "ready", info: { ...info, chatTemplate: template.origin }, load });
  }

  #command(command: ThreadCommand): void {
    this.#thread.postMessage(command);
    Atomics.add(this.#wakeWord, 0, 1);
    Atomics.notify(this.#wakeWord, 0);
  }

  #load(): ChildLoad {
    const load = this.#threadLoad;
    return {
      running: load?.running ?? 0,
      waiting: this.#book?.waiting ?? 0,
      maxSequences: this.#maxSequences,
      maxQueued: this.#start.maxQueued,
      kvUsedTokens: load?.kvUsedTokens ?? 0,
      kvTokens: this.#kvTokens,
      promptTokens: load?.promptTokens ?? 0,
      cachedTokens: load?.cachedTokens ?? 0,
      generatedTokens: load?.generatedTokens ?? 0,
      draftTokens: load?.draftTokens ?? 0,
      acceptedTokens: load?.acceptedTokens ?? 0,
      residentBytes: this.#residentBytes(),
    };
  }

  #residentBytes(): number {
    const nowMs = performance.now();
    if (nowMs - this.#resident.takenMs > RESIDENT_MAX_AGE_MS) {
      this.#resident = { bytes: process.memoryUsage.rss(), takenMs: nowMs };
    }
    return this.#resident.bytes;
  }
}

function failureOf(error: unknown): EngineFailure {
  const { code, message } = toAppError(error);
  return { code: code === "server_error" ? "engine_failed" : code, message };
}

function send(message: ChildMessage): void {
  if (process.connected) process.send?.(message);
}

/** Ends the process at once: an ordinary exit would wait for native code and run its destructors. */
function end(): void {
  process.kill(process.pid, "SIGKILL");
}

function die(error: EngineFailure): void {
  const message: ChildMessage = { kind: "fatal", error };
  if (process.connected) process.send?.(message, end);
  else end();
}

let engine: EngineProcess | undefined;
process.on("disconnect", end);
process.on("message", (message: ParentMessage) => {
  if (message.kind === "start") engine = new EngineProcess(message.start);
  else if (message.kind === "ping") send({ kind: "pong" });
  else engine?.handle(message);
});
