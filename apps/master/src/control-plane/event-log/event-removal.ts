import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { toAppError } from "@heddle/base/errors";
import type { LogEvent } from "@heddle/contracts/api/events/log";
import { settingValue } from "@heddle/contracts/api/settings";
import { checkpointSize, firstEvent } from "@heddle/control/audit/audit-changes";
import { REMOVES_EVENTS, versionOf } from "@heddle/control/cluster-version";
import type { Logger } from "@heddle/observability/logger";
import { isActiveLeader } from "../active-leader.ts";
import type { ControlPlane } from "../control-plane.ts";
import { propose } from "../propose.ts";
import type { RecordedEvents } from "../recorded-events.ts";

const POLL_MS = 10_000;
const DAY_MS = 86_400_000;
const MIB = 2 ** 20;

interface RemovalParts {
  readonly control: ControlPlane;
  readonly events: RecordedEvents;
  readonly log: Logger;
  readonly pollMs?: number | undefined;
}

/**
 * Has all masters remove the oldest events, as the settings `event_days` and `event_mib` say, while
 * this master leads. What goes is an entry of the log and an event, so each master removes the same.
 */
export class EventRemoval {
  readonly #parts: RemovalParts;
  readonly #stop = new AbortController();

  constructor(parts: RemovalParts) {
    this.#parts = parts;
  }

  async run(): Promise<void> {
    const { control, log, pollMs = POLL_MS } = this.#parts;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await abortableDelay(pollMs, signal, { ref: false });
      if (signal.aborted || !isActiveLeader(control)) continue;
      await this.removeDue().catch((error: unknown) => {
        log.warn({ err: toAppError(error) }, "the oldest events could not be removed yet");
      });
    }
  }

  close(): void {
    this.#stop.abort();
  }

  /** Removes the events that the settings no longer keep. */
  async removeDue(): Promise<void> {
    const { control, events } = this.#parts;
    const { settings, cluster } = control.state;
    if (versionOf(control.state) < REMOVES_EVENTS || events.missing > 0) return;
    const [days, mib] = [settingValue(settings, "event_days"), settingValue(settings, "event_mib")];
    if (days === 0 && mib === 0) return;
    const first = firstEvent(cluster);
    const signed = checkpointSize(cluster.get("checkpoint"));
    const segments = await events.store.segments();
    const kept = segments.filter((segment) => segment.first >= first && segment.end <= signed);
    let bytes = segments.reduce((sum, segment) => sum + segment.bytes, 0);
    let end = first;
    const atMs = Date.now();
    for (const segment of kept) {
      const isEnded = mib > 0 && bytes > mib * MIB;
      const isOld = () => this.#lastMs(segment.end).then((ms) => ms < atMs - days * DAY_MS);
      if (!isEnded && !(days > 0 && (await isOld()))) break;
      bytes -= segment.bytes;
      end = segment.end;
    }
    if (end > first) await propose(control, { type: "events.remove", atMs, first, end });
  }

  /** When the last event before that place was recorded. */
  async #lastMs(end: number): Promise<number> {
    const [bytes] = (await this.#parts.events.store.read(end - 1, 1)).entries;
    const { recordedtime } = JSON.parse(Buffer.from(bytes ?? []).toString()) as LogEvent;
    return Date.parse(recordedtime);
  }
}
