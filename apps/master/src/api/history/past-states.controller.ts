import { historyOperations, type PastStateQuery } from "@heddle/contracts/api/history/state";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { Controller, Inject, Param, Query, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { JSON_TYPE } from "../../http/pieces.ts";
import { Serves } from "../../http/serves.ts";
import { PastStates } from "./past-states.ts";

/** The cluster as it was at a position of the log. */
@Controller()
export class PastStatesController {
  readonly #past: PastStates;

  constructor(@Inject(PastStates) past: PastStates) {
    this.#past = past;
  }

  @Serves(historyOperations.state)
  async state(@Query() query: PastStateQuery, @Res() reply: FastifyReply): Promise<void> {
    const { at, ...page } = query;
    const question = { kind: "state", collection: undefined, after: undefined, ...page } as const;
    await this.#send(reply, await this.#past.ask(at, question));
  }

  @Serves(historyOperations.decision)
  async decision(
    @Param("id") job: string,
    @Query() { at }: QueryOf<typeof historyOperations.decision>,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    await this.#send(reply, await this.#past.ask(at, { kind: "decision", job }));
  }

  async #send(reply: FastifyReply, json: string): Promise<void> {
    await reply.type(JSON_TYPE).send(json);
  }
}
