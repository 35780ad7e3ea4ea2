import { AppError } from "@heddle/base/errors";
import type { EventBytes } from "@heddle/contracts/generated/heddle/v1/EventBytes";
import type { EventRange__Output } from "@heddle/contracts/generated/heddle/v1/EventRange";
import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { eventEntriesService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane.ts";
import { MAX_READ } from "./event-catch-up.ts";

/** EventEntries of proto/events.proto: what other masters read of this one's event log. */
@Controller()
export class EventEntriesController {
  readonly #control: ControlPlane;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane) {
    this.#control = control;
  }

  @GrpcCall(eventEntriesService, "Read")
  async read({ origin, first, limit }: EventRange__Output): Promise<EventBytes> {
    const { events } = this.#control;
    const from = Number(first);
    if (!events || events.origin !== origin || from < events.store.first) {
      throw new AppError("not_found", `this master does not have event ${first} of ${origin}`);
    }
    if (from >= events.store.size) return { entries: [] };
    const { entries } = await events.store.read(from, Math.min(limit, MAX_READ));
    return { entries: entries.map((entry) => Buffer.from(entry)) };
  }
}
