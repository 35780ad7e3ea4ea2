import type { Server, ServerUnaryCall, ServerWritableStream, sendUnaryData } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { HealthCheckRequest__Output } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckRequest";
import type { HealthCheckResponse } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckResponse";
import { healthService } from "./proto.ts";
import { toStatus } from "./status.ts";

type Watch = ServerWritableStream<HealthCheckRequest__Output, HealthCheckResponse>;

/** Watches need no token, so their number is bounded. */
const maxWatches = 64;

/** The grpc.health.v1 service of one process; every service has the process's health. */
export class Health {
  #serving = true;
  readonly #watches = new Set<Watch>();

  addTo(server: Server): void {
    server.addService(healthService, {
      check: (
        _call: ServerUnaryCall<HealthCheckRequest__Output, HealthCheckResponse>,
        reply: sendUnaryData<HealthCheckResponse>,
      ) => reply(null, this.#status()),
      watch: (call: Watch) => {
        if (this.#watches.size >= maxWatches) {
          call.emit(
            "error",
            toStatus(new AppError("overloaded", `${maxWatches} watches are open`)),
          );
          return;
        }
        this.#watches.add(call);
        call.once("cancelled", () => this.#watches.delete(call));
        call.write(this.#status());
      },
    });
  }

  /** Reports to probes and watchers that the process no longer serves, and ends the watches. */
  stopServing(): void {
    this.#serving = false;
    for (const watch of this.#watches) {
      watch.write(this.#status());
      watch.end();
    }
    this.#watches.clear();
  }

  #status(): HealthCheckResponse {
    return { status: this.#serving ? "SERVING" : "NOT_SERVING" };
  }
}
