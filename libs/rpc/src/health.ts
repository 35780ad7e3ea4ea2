import type { ServerWritableStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { HealthCheckRequest__Output } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckRequest";
import type { HealthCheckResponse } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckResponse";

type Watch = ServerWritableStream<HealthCheckRequest__Output, HealthCheckResponse>;

/** Watches need no token, so their number is bounded. */
const MAX_WATCHES = 64;

/** The grpc.health.v1 state of one process; every service has the process's health. */
export class Health {
  #serving = true;
  readonly #watches = new Map<Watch, () => void>();

  get status(): HealthCheckResponse {
    return { status: this.#serving ? "SERVING" : "NOT_SERVING" };
  }

  /** Writes the status now and when it changes. Resolves when the caller or the process is gone. */
  async watch(call: Watch): Promise<void> {
    if (this.#watches.size >= MAX_WATCHES) {
      throw new AppError("overloaded", `${MAX_WATCHES} watches are open`);
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#watches.set(call, resolve);
    call.once("cancelled", resolve);
    call.write(this.status);
    await promise;
    this.#watches.delete(call);
  }

  /** Reports to probes and watchers that the process no longer serves, and ends the watches. */
  stopServing(): void {
    this.#serving = false;
    for (const [watch, end] of this.#watches) {
      watch.write(this.status);
      end();
    }
  }
}
