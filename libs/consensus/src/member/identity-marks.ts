import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import type { SecretKeys } from "@heddle/base/secret-keys";
import type { Log } from "@heddle/observability/logger";
import { type Identity, writeIdentity } from "./identity.ts";

/** Longer than a change that was encoded before the key was agreed on may wait for a leader. */
const SETTLE_MS = 12_000;
const AGAIN_MS = 1_000;
/** The number that a master keeps. */
const SNAPSHOTS = 2;

/** The replica's functions that replace its files. */
interface LogFiles {
  renewLog(): Promise<void>;
  takeSnapshot(): Promise<void>;
  status(): { readonly applied: number; readonly snapshotIndex: number };
}

interface MarksParts {
  readonly directory: string;
  readonly identity: Identity;
  /** The cluster version, and the id of the key that encrypts the log. */
  readonly control: { readonly version: number; readonly secretsKey: string | undefined };
  /** Whether the files may hold secrets in clear. */
  readonly holdsSecrets: () => boolean;
  /** Encrypt what identity.json holds of secrets. */
  readonly keys: SecretKeys;
  readonly log: Log;
  /** Adds an entry that changes nothing to the log. */
  readonly addEntry: () => Promise<unknown>;
  readonly onError: (error: unknown) => void;
}

/**
 * Keeps the cluster version and the id of the log's key in identity.json, which the next start reads first.
 * After a new key it replaces the log and the snapshots, which hold data in clear or under an earlier key.
 */
export class IdentityMarks {
  readonly #parts: MarksParts;
  #stored: Identity;
  readonly #writes = new SerialQueue();
  #files: LogFiles | undefined;
  #cleaning: AbortController | undefined;

  constructor(parts: MarksParts) {
    this.#parts = parts;
    this.#stored = parts.identity;
  }

  /** Changes what identity.json says; one change after the other. */
  store(change: Partial<Identity>): Promise<void> {
    this.#stored = { ...this.#stored, ...change };
    const { directory, keys } = this.#parts;
    return this.#writes.run(() => writeIdentity(directory, this.#stored, keys));
  }

  /** The log was replayed: from here on a new key is one that the group has just agreed on. */
  begin(files: LogFiles): void {
    this.#files = files;
    this.note();
  }

  /** To be called when the version or the key may have changed. */
  note(): void {
    const { control, onError } = this.#parts;
    const { version: clusterVersion, secretsKey } = control;
    if (clusterVersion > (this.#stored.clusterVersion ?? 1)) {
      this.store({ clusterVersion }).catch(onError);
    }
    if (this.#files && secretsKey !== undefined) this.#noteKey(secretsKey, this.#files);
  }

  async settle(): Promise<void> {
    this.#cleaning?.abort();
    await this.#writes.idle();
  }

  #noteKey(key: string, files: LogFiles): void {
    const { holdsSecrets, onError } = this.#parts;
    const { secrets } = this.#stored;
    if (secrets?.key === key && (secrets.isClean || this.#cleaning)) return;
    const isClean = !holdsSecrets();
    if (secrets?.key !== key) this.store({ secrets: { key, isClean } }).catch(onError);
    this.#cleaning?.abort();
    if (isClean) return;
    this.#cleaning = new AbortController();
    const { signal } = this.#cleaning;
    this.#clean(key, files, signal).catch((error: unknown) => {
      if (!signal.aborted) onError(error);
    });
  }

  async #clean(key: string, files: LogFiles, signal: AbortSignal): Promise<void> {
    const { addEntry, log } = this.#parts;
    await abortableDelay(SETTLE_MS, signal, { ref: false });
    if (!signal.aborted) await files.renewLog();
    for (let taken = 0; taken < SNAPSHOTS && !signal.aborted; ) {
      const isAdded = await addEntry().then(
        () => true,
        () => false,
      );
      if (isAdded) taken += await takeFresh(files);
      else await abortableDelay(AGAIN_MS, signal, { ref: false });
    }
    if (signal.aborted) return;
    await this.store({ secrets: { key, isClean: true } });
    const text =
      "this master's log and snapshots hold nothing from before its secrets key any more";
    log.info({ key }, text);
  }
}

/** A snapshot under way may be older than the call; resolves with how many were taken of now. */
async function takeFresh(files: LogFiles): Promise<0 | 1> {
  const wanted = files.status().applied;
  await files.takeSnapshot();
  return files.status().snapshotIndex < wanted ? 0 : 1;
}
