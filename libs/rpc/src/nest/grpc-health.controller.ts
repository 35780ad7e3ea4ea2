import type { HealthCheckRequest__Output } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckRequest";
import type { HealthCheckResponse } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckResponse";
import { Controller, Inject } from "@nestjs/common";
import { Health } from "../health.ts";
import { healthService } from "../proto.ts";
import { GrpcCall, type StreamContext } from "./grpc-call.ts";

type WatchContext = StreamContext<HealthCheckRequest__Output, HealthCheckResponse>;

/** The service grpc.health.v1 of the process. */
@Controller()
export class GrpcHealthController {
  readonly #health: Health;

  constructor(@Inject(Health) health: Health) {
    this.#health = health;
  }

  @GrpcCall(healthService, "Check")
  check(): HealthCheckResponse {
    return this.#health.status;
  }

  @GrpcCall(healthService, "Watch")
  watch(_request: HealthCheckRequest__Output, { call }: WatchContext): Promise<void> {
    return this.#health.watch(call);
  }
}
