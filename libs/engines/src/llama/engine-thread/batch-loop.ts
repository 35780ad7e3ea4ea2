import type { KvCache } from "../kv-cache/kv-cache.ts";
import {
  type EmbeddedSequence,
  type Sequence,
  scoredRows,
  type TextSequence,
  waitingState,
} from "../kv-cache/sequence.ts";
import { TokenList } from "../kv-cache/token-list.ts";
import type { StepRing } from "../protocol/step-ring.ts";
import {
  ENDED_BROKEN,
  ENDED_STUCK,
  ENDED_UNFIT,
  goesOn,
  type ThreadCommand,
  type ThreadEmbed,
  type ThreadLoad,
  type ThreadStep,
  type ThreadSubmit,
} from "../protocol/thread-messages.ts";
import { samplerScratch } from "../sampling/sampler.ts";
import { DraftRounds, MAX_ROUND_DRAFT_TOKENS } from "../speculation/draft-rounds.ts";
import { admitWaiting, youngestOf } from "./admission.ts";
import { DECODED, NO_KV_SLOT, STAGES_LOST, STAGES_UNFIT } from "./batch.ts";
import { beginTexts, type TextParts } from "./begin-text.ts";
import { CallsUnderWay, shareOfCall } from "./calls-under-way.ts";
import { shiftContext } from "./context-shift.ts";
import type { DecodeCall } from "./decode-call.ts";
import { DecodeGrouping } from "./decode-grouping.ts";
import { EmbeddingRounds } from "./embedding-rounds.ts";
import { LoadedAdapters } from "./loaded-adapters.ts";
import type { LoadedModel } from "./model.ts";
import { OutputRows } from "./output-rows.ts";
import { type Phases, phasesOf, promptLeft } from "./phases.ts";
import { countExact, MAX_SCORED_TOKENS, planPrefill } from "./prefill-plan.ts";
import { SequenceQueue } from "./sequence-queue.ts";
import { StepReport } from "./step-report.ts";
import { ThreadGrammars } from "./thread-grammars.ts";
import { TokenDraw } from "./token-draw.ts";

/**
 * Continuous batching: every round decodes one token for every running sequence and spends a bounded
 * budget on prefill. It owns no thread and no clock: the caller passes commands in, calls `step`,
 * and posts what it returns.
 * - With a unified cache a step is a round in one call, which also holds the prompts' tokens.
 * - With slots, the library computes sequences one by one unless they have equally many tokens.
 *   Prompts then get calls and steps of their own, so that a first token waits for no other prompt.
 * - Kernels round differently by batch size, so other requests can tip a near tie, also in greedy text.
 *   A deterministic sequence is computed in fixed pieces and in calls of its own.
 */
export class BatchLoop {
  readonly #model: LoadedModel;
  readonly #calls: CallsUnderWay;
  readonly #cache: KvCache;
  readonly #queue = new SequenceQueue<Sequence>();
  readonly #sequences = new Map<number, Sequence>();
  readonly #grouping: DecodeGrouping;
  /** With slots: the prompts of this round that are still to be computed, as planned. */
  #prompts: TextSequence[] = [];
  readonly #logits: OutputRows;
  readonly #embeddings: EmbeddingRounds;
  readonly #clockMs: () => number;
  readonly #report: StepReport;
  readonly #texts: TextParts;
  readonly #draw: TokenDraw;
  readonly #grammars: ThreadGrammars;
  readonly #drafts: DraftRounds;
  readonly #adapters: LoadedAdapters;
  readonly #totals = { prompt: 0, cached: 0, generated: 0 };
  /** Whether the load changed with nothing else to report. */
  #loadChanged = false;

  /** Plain steps go into the ring. `clockMs` times the calls, to find the faster grouping of sequences. */
  constructor(model: LoadedModel, ring: StepRing, clockMs: () => number) {
    this.#model = model;
    const { cache, limits, batchTokens, vocabularySize } = model;
    this.#calls = new CallsUnderWay(model);
    this.#cache = cache;
    this.#grouping = new DecodeGrouping(limits.maxSequences, clockMs);
    this.#drafts = new DraftRounds({ ...model, ...limits }, clockMs);
    const rows = limits.maxSequences + MAX_ROUND_DRAFT_TOKENS + MAX_SCORED_TOKENS;
    this.#logits = new OutputRows(vocabularySize, rows);
    this.#report = new StepReport(batchTokens, ring);
    this.#clockMs = clockMs;
    this.#embeddings = new EmbeddingRounds(model);
    this.#grammars = new ThreadGrammars(model);
    const scratch = samplerScratch(vocabularySize);
    this.#texts = { model, grammars: this.#grammars, scratch, drafts: this.#drafts };
    this.#draw = new TokenDraw(model);
    this.#adapters = new LoadedAdapters(model, this.#sequences);
  }

  /** Whether there is nothing to compute. */
  get isIdle(): boolean {
    return this.#sequences.size === 0 && this.#calls.count === 0;
  }

  get load(): ThreadLoad {
    return {
      running: this.#cache.running.size,
      waiting: this.#queue.size,
      kvUsedTokens: this.#cache.usedTokens,
      promptTokens: this.#totals.prompt,
      cachedTokens: this.#totals.cached,
      generatedTokens: this.#totals.generated,
      draftTokens: this.#drafts.totals.drafted,
      acceptedTokens: this.#drafts.totals.accepted,
    };
  }

  command(command: ThreadCommand, nowMs: number): void {
    switch (command.kind) {
      case "submit":
        this.#submit(command, nowMs);
        this.#loadChanged = true;
        return;
      case "embed":
        for (const input of command.prompts.keys()) this.#enqueueEmbedding(command, input, nowMs);
        this.#loadChanged = true;
        return;
      case "end":
        for (const handle of command.handles) {
          const sequence = this.#sequences.get(handle);
          if (sequence !== undefined) this.#end(sequence);
        }
        return;
      case "grammar":
        this.#grammars.add(command);
        return;
      case "forgetGrammar":
        this.#grammars.forget(command.id);
        return;
      default:
        command satisfies never;
    }
  }

  /**
   * Runs one step: admit, plan, decode, sample. Gives what to post, if anything. Throws where the
   * native library failed for good: its state cannot be trusted then.
   */
  step(nowMs: number): ThreadStep | number | undefined {
    if (this.#queue.size > 0) this.#admit(nowMs);
    const beganMs = this.#clockMs();
    const embedded = [...this.#cache.running].filter((each) => each.embedding !== undefined);
    if (this.#model.limits.layout === "slots") this.#stepApart();
    else this.#stepTogether(embedded.length > 0 ? 1 : this.#model.callsAtOnce);
    if (embedded.length > 0) this.#stepEmbedded(embedded, beganMs);
    if (this.#report.isEmpty && !this.#loadChanged) return undefined;
    this.#loadChanged = false;
    return this.#report.take(this.load);
  }

  #submit(command: ThreadSubmit, nowMs: number): void {
    const adapter = this.#adapters.numberOf(command.adapter);
    if (adapter < 0) {
      this.#report.token(command.firstHandle, this.#model.eosToken, -adapter, undefined);
      return;
    }
    const begun = beginTexts(this.#texts, command, adapter, nowMs);
    for (const sequence of begun ?? []) this.#push(sequence);
    if (begun) return;
    this.#report.token(command.firstHandle, this.#model.eosToken, ENDED_STUCK, undefined);
  }

  #enqueueEmbedding(request: ThreadEmbed, input: number, nowMs: number): void {
    const tokens = new TokenList(request.prompts[input] as Int32Array, 0);
    this.#push({
      ...waitingState(request, input, tokens, nowMs),
      request,
      embedding: new Float64Array(this.#model.pooling.size),
    });
  }

  #push(sequence: Sequence): void {
    this.#sequences.set(sequence.handle, sequence);
    this.#queue.push(sequence);
  }

  #admit(nowMs: number): void {
    for (const sequence of admitWaiting(this.#queue, this.#cache, nowMs)) {
      this.#loadChanged = true;
      // Only the first choice's first admission starts the request and counts its prompt.
      const { isFirst, promptLength } = sequence;
      if (sequence.started || (!isFirst && sequence.embedding === undefined)) continue;
      sequence.started = true;
      this.#totals.prompt += promptLength;
      if (!isFirst) continue;
      // The tokens of an answer that is continued may be cached too.
      const cachedTokens = Math.min(sequence.computed, promptLength);
      this.#totals.cached += cachedTokens;
      this.#report.started({
        firstHandle: sequence.request.firstHandle,
        cachedTokens,
        queuedMs: nowMs - sequence.arrivedMs,
      });
    }
  }

  /** A round in one call; of a model in stages up to `most` calls are under way at once. */
  #stepTogether(most: number): void {
    while (this.#calls.count < most) {
      const call = this.#calls.next();
      if (!call || !this.#plan(call, most)) break;
      this.#calls.send(call, this.#adapters.given(call.members[0]?.adapter ?? 0));
    }
    do this.#receive();
    while (this.#calls.count >= most);
  }

  /** Fills a call with a token of each decoding sequence, then prompts in the budget; false for none. */
  #plan(call: DecodeCall, most: number): boolean {
    const { batchTokens, prefillBudgetTokens } = this.#model;
    for (;;) {
      const { decoding, prompts } = this.#runningByPhase();
      decoding.splice(shareOfCall(this.#cache.running.size, most));
      const drafted = this.#drafts.plan(decoding, "together");
      const room = batchTokens - decoding.length - drafted;
      const budget = decoding.length > 0 ? Math.min(prefillBudgetTokens, room) : room;
      const wanted = decoding.length + drafted + planPrefill(prompts, budget);
      if (wanted === 0) return false;
      const due = this.#calls.tokens;
      const free = this.#cache.makeRoom(wanted + due) - due;
      if (free < wanted) {
        this.#drafts.withdraw(decoding);
        planPrefill(prompts, Math.max(0, free - decoding.length));
      }
      // A sequence alone always fits, so the preempting ends.
      if (free < Math.max(1, decoding.length)) {
        // Sequences that are under way may end.
        if (due > 0) return false;
        this.#preemptYoungest();
        continue;
      }
      for (const sequence of decoding) call.add(sequence);
      for (const sequence of prompts) if (sequence.planned > 0) call.add(sequence);
      return true;
    }
  }

  /** The next planned prompt, or the beginning of a new round: everyone's next token. */
  #stepApart(): void {
    if (this.#prompts.length > 0 && this.#computePrompt()) return;
    const { decoding, prompts } = this.#runningByPhase();
    if (decoding.length > 0) this.#decodeRound(decoding);
    if (prompts.length === 0) return;
    planPrefill(prompts, this.#model.prefillBudgetTokens);
    this.#prompts = prompts.sort((a, b) => promptLeft(b) - promptLeft(a));
    if (decoding.length === 0) this.#computePrompt();
  }

  /** Computes the planned part of the shortest prompt; false where none is planned. */
  #computePrompt(): boolean {
    for (;;) {
      const sequence = this.#prompts.pop();
      if (sequence === undefined) return false;
      // It may have ended since it was planned.
      if (sequence.slot < 0 || sequence.planned === 0) continue;
      this.#compute([sequence]);
      return true;
    }
  }

  /** Sequences with drafts of one length in a call, those without drafts as is fastest. */
  #decodeRound(decoding: readonly TextSequence[]): void {
    const free = decoding.filter((sequence) => !sequence.isDeterministic);
    const isApart = this.#grouping.isApart(free.length);
    this.#drafts.plan(
      free,
      isApart ? "apart" : { roundMs: this.#grouping.togetherMs(free.length) },
    );
    const others: TextSequence[] = [];
    for (const sequence of decoding) {
      const isAlone = sequence.isDeterministic || this.#drafts.isAlone(sequence, isApart);
      if (isAlone) this.#compute([sequence]);
      else others.push(sequence);
    }
    for (const [drafted, group] of Map.groupBy(others, (sequence) => sequence.drafted)) {
      if (drafted === 0) this.#decodeInGroups(group);
      else this.#compute(this.#gathered(group));
    }
  }

  #decodeInGroups(decoding: TextSequence[]): void {
    const gather = () => this.#gathered(decoding);
    this.#grouping.run(decoding.length, gather, (at, size) => {
      this.#compute(decoding.slice(at, at + size));
    });
  }

  /** The library joins neighbours that come in the order of their slots. */
  #gathered(decoding: TextSequence[]): TextSequence[] {
    this.#cache.gather(decoding);
    return decoding.sort((a, b) => a.slot - b.slot);
  }

  #compute(sequences: readonly TextSequence[]): void {
    const call = this.#calls.next();
    for (const sequence of sequences) call?.add(sequence);
    if (call) this.#calls.send(call);
    this.#receive();
  }

  /** Computes the oldest call that was sent, and samples from it. */
  #receive(): void {
    const call = this.#calls.take();
    if (!call) return;
    const run = () => {
      if (this.#decode(call)) this.#sampleRows(call);
    };
    const isAlone = call.members.length === 1 && this.#model.callsAtOnce === 1;
    if (isAlone && call.members[0]?.planned === 1) this.#drafts.timed(call.members[0], run);
    else run();
  }

  /** The inputs to embed get a call of their own, while text runs at most half of the time. */
  #stepEmbedded(embedded: readonly EmbeddedSequence[], beganMs: number): void {
    const hasText = embedded.length < this.#cache.running.size;
    const textEndMs = this.#clockMs();
    if (!this.#embeddings.isDue(hasText, textEndMs - beganMs)) return;
    const planned = this.#embeddings.plan(embedded, hasText);
    if (this.#cache.makeRoom(planned) < planned) {
      this.#preemptYoungest();
      return;
    }
    const call = this.#calls.next();
    if (!call) return;
    for (const sequence of this.#embeddings.fill(embedded, call.batch)) call.enter(sequence);
    if (call.members.length === 0 || !this.#decodeEmbedded(call)) return;
    for (const { sequence, values } of this.#embeddings.pool()) {
      this.#report.embedding({ handle: sequence.handle, values });
      this.#end(sequence);
    }
    this.#embeddings.spent(this.#clockMs() - textEndMs);
  }

  #decodeEmbedded(call: DecodeCall): boolean {
    const { llama, context } = this.#model;
    llama.set_embeddings(context, true);
    try {
      this.#calls.send(call);
      this.#calls.take();
      return this.#decode(call);
    } finally {
      llama.set_embeddings(context, false);
    }
  }

  #runningByPhase(): Phases {
    const { running } = this.#cache;
    const free = [...running].filter((sequence) => !this.#calls.has(sequence));
    return phasesOf(free, this.#adapters.nextOf(running));
  }

  /** True where the call was computed; false where room had to be made and nothing was. */
  #decode(call: DecodeCall): boolean {
    this.#adapters.apply(call.members[0]?.adapter ?? 0);
    const answer = this.#model.decode(call.batch);
    const members = call.current;
    if (answer !== DECODED) for (const sequence of members) sequence.drafted = 0;
    if (answer === STAGES_LOST) {
      this.#calls.drop();
      while (this.#cache.running.size > 0) this.#preemptYoungest();
      this.#cache.evictAll();
      return false;
    }
    if (answer === STAGES_UNFIT) {
      for (const sequence of members) this.#endBroken(sequence, ENDED_UNFIT);
      return false;
    }
    if (answer === NO_KV_SLOT) {
      if (this.#cache.evictAll() > 0) return false;
      if (this.#cache.running.size < 2) throw new Error("one sequence does not fit the KV cache");
      this.#preemptYoungest();
      return false;
    }
    if (answer !== DECODED) throw new Error(`llama_decode failed with code ${answer}`);
    for (const sequence of members) {
      countExact(sequence);
      sequence.computed += sequence.planned;
      this.#queue.charge(sequence.fairKey, sequence.planned + sequence.drafted);
      sequence.planned = 0;
      this.#drafts.computed(sequence);
    }
    return true;
  }

  #sampleRows(call: DecodeCall): void {
    const { llama, context } = this.#model;
    if (call.rows.length > 0) this.#logits.point(llama.get_logits(context));
    let row = 0;
    for (const [i, sequence] of call.rows.entries()) {
      if (call.isCurrent(sequence)) this.#readRows(sequence, row);
      row += call.rowCounts[i] ?? 0;
    }
  }

  /** Reads a sequence's rows: the scores of its prompt, and the next token. */
  #readRows(sequence: TextSequence, row: number): void {
    const scored = scoredRows(sequence);
    const isSound = scored === 0 || this.#scorePrompt(sequence, row, scored);
    const isComputed = sequence.computed === sequence.tokens.length;
    if (isSound && isComputed) this.#sampleFrom(sequence, row + scored);
  }

  /** Reports the scores of the prompt's next tokens; false where they are no numbers. */
  #scorePrompt(sequence: TextSequence, firstRow: number, count: number): boolean {
    const rows = this.#logits.scores(sequence, firstRow, count);
    if (rows === undefined) this.#endBroken(sequence);
    else this.#report.scores({ firstHandle: sequence.handle, rows });
    return rows !== undefined;
  }

  /** Samples from a sequence's first row, and from those of its draft while the draft is right. */
  #sampleFrom(sequence: TextSequence, firstRow: number): void {
    for (let row = firstRow; ; row++) {
      const logits = this.#logits.row(row);
      // Where the model's state is no number, neither is the score of any token.
      if (Number.isNaN(logits[0])) {
        this.#endBroken(sequence);
        return;
      }
      if (!sequence.shared) {
        this.#cache.share(sequence, sequence.promptLength);
        sequence.shared = true;
      }
      const draw = this.#draw;
      draw.next(sequence, logits);
      if (draw.end !== ENDED_STUCK) this.#totals.generated++;
      this.#report.token(sequence.handle, draw.token, draw.end, draw.logprobs);
      if (!goesOn(draw.end)) {
        this.#end(sequence);
        return;
      }
      if (!this.#drafts.accepts(sequence, draw.token)) break;
    }
    this.#dropDraft(sequence);
    const isFull = sequence.tokens.length >= this.#model.limits.contextTokens;
    if (isFull && !shiftContext(sequence, this.#model)) this.#requeue(sequence);
  }

  /** Takes away what was computed for tokens that were not sampled. */
  #dropDraft(sequence: Sequence): void {
    if (sequence.drafted === 0) return;
    sequence.drafted = 0;
    this.#cache.truncate(sequence);
  }

  /** What it computed, or was given of what others had, may be what broke it: none of it is kept. */
  #endBroken(sequence: Sequence, how = ENDED_BROKEN): void {
    this.#report.token(sequence.handle, this.#model.eosToken, how, undefined);
    this.#dropDraft(sequence);
    this.#cache.release(sequence);
    if (how === ENDED_BROKEN) this.#cache.evictAll();
    this.#forget(sequence);
  }

  #end(sequence: Sequence): void {
    if (sequence.slot >= 0) {
      this.#dropDraft(sequence);
      this.#cache.share(sequence, sequence.computed);
      this.#cache.release(sequence);
    } else {
      this.#queue.remove(sequence);
    }
    this.#forget(sequence);
  }

  #forget(sequence: Sequence): void {
    this.#queue.leave(sequence.fairKey);
    this.#sequences.delete(sequence.handle);
    this.#loadChanged = true;
  }

  /** Takes the youngest sequence's cells; it waits first in line and recomputes them later. */
  #preemptYoungest(): void {
    const youngest = youngestOf(this.#cache.running);
    if (youngest === undefined) throw new Error("no sequence is left to preempt");
    this.#cache.release(youngest);
    this.#requeue(youngest);
  }

  #requeue(sequence: Sequence): void {
    sequence.waitingSinceMs = -1;
    this.#queue.pushFront(sequence);
    this.#loadChanged = true;
  }
}
