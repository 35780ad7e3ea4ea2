import { AppError, toAppError } from "@heddle/base/errors";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";
import { streamArtifact } from "@heddle/rpc/artifact-stream";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { readArtifact } from "./artifact-service.ts";
import type { ArtifactStore } from "./artifact-store.ts";

/** The injection token of the ArtifactBytes of all workers. */
export const ARTIFACT_BYTES = Symbol("ArtifactBytes");

/**
 * Reads any artifact: from this worker's own disk, else through the masters, one after the other.
 */
export function artifactSource(options: {
  readonly store: ArtifactStore;
  /** host:port of the masters that are known by now. */
  readonly masters: () => readonly string[];
  readonly credentials: NodeCredentials;
}): ArtifactBytes {
  const { store, masters, credentials } = options;
  return async function* bytes({ name, ...place }, offset, signal) {
    // Only a task that was not lost leaves artifacts: they are stored without its incarnation.
    const id = { ...place, incarnation: 0 };
    const file = await store.open(id, name).catch(() => undefined);
    if (file) {
      await file.close();
      yield* readArtifact(store, id, name, offset, 0);
      return;
    }
    let at = offset;
    const failures: AppError[] = [];
    for (const address of masters()) {
      const master = { address, role: "master" } as const;
      try {
        const request = { task: id, name, offset: at, maxBytes: 0 };
        for await (const data of streamArtifact(master, credentials, request, signal)) {
          at += data.byteLength;
          yield data;
        }
        return;
      } catch (error) {
        signal.throwIfAborted();
        failures.push(toAppError(error));
      }
    }
    throw best(failures);
  };
}

/** A transient error is more informative than `not_found`: another master may be behind. */
function best(failures: readonly AppError[]): AppError {
  const [first] = failures;
  const passing = failures.find(({ code }) => code !== "not_found");
  return passing ?? first ?? new AppError("unavailable", "no master is known");
}
