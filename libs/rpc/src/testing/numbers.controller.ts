import type { ServerDuplexStream, ServiceDefinition } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { Controller, Inject, Injectable } from "@nestjs/common";
import { GrpcCall, type GrpcContext, type StreamContext } from "../nest/grpc-call.ts";

const json = {
  requestSerialize: (value: unknown) => Buffer.from(JSON.stringify(value)),
  requestDeserialize: (bytes: Buffer): unknown => JSON.parse(String(bytes)),
  responseSerialize: (value: unknown) => Buffer.from(JSON.stringify(value)),
  responseDeserialize: (bytes: Buffer): unknown => JSON.parse(String(bytes)),
};
/** A service of each kind of method; its messages are JSON. */
export const numbersService: ServiceDefinition = {
  Double: { path: "/test.Numbers/Double", requestStream: false, responseStream: false, ...json },
  Count: { path: "/test.Numbers/Count", requestStream: false, responseStream: true, ...json },
  Echo: { path: "/test.Numbers/Echo", requestStream: true, responseStream: true, ...json },
};

/** How many calls waited for their abort, and why their signals were aborted. */
@Injectable()
export class Seen {
  waiting = 0;
  readonly aborted: string[] = [];
}

@Controller()
export class NumbersController {
  readonly #seen: Seen;

  constructor(@Inject(Seen) seen: Seen) {
    this.#seen = seen;
  }

  @GrpcCall(numbersService, "Double")
  async double({ number }: { number: number }, { metadata, signal }: GrpcContext) {
    if (number < 0) throw new AppError("overloaded", "too low", { retryAfterMs: 7 });
    if (number > 100) {
      this.#seen.waiting++;
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      this.#seen.aborted.push((signal.reason as Error).message);
    }
    return { number: 2 * number, isAuthorized: metadata.get("authorization").length > 0 };
  }

  @GrpcCall(numbersService, "Count")
  async count({ number }: { number: number }, { call }: StreamContext<unknown, unknown>) {
    for (let at = 0; at < number; at++) call.write({ at });
    if (number === 0) throw new AppError("not_found", "nothing to count");
  }

  @GrpcCall(numbersService, "Echo")
  echo(stream: ServerDuplexStream<object, object>): void {
    stream.on("data", (value: object) => stream.write(value));
    stream.on("end", () => stream.end());
  }
}
