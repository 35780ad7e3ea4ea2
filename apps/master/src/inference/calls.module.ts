import { type BeforeApplicationShutdown, Global, Inject, Module } from "@nestjs/common";
import { MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { InFlight } from "./in-flight.ts";

/** The running calls. */
@Global()
@Module({
  providers: [
    {
      provide: InFlight,
      inject: [MASTER_CONFIG],
      useFactory: ({ maxCalls, maxReadingBytes }: MasterConfig) =>
        new InFlight(maxCalls, maxReadingBytes),
    },
  ],
  exports: [InFlight],
})
export class CallsModule implements BeforeApplicationShutdown {
  readonly #inFlight: InFlight;
  readonly #drainMs: number;

  constructor(
    @Inject(InFlight) inFlight: InFlight,
    @Inject(MASTER_CONFIG) { drainMs }: Pick<MasterConfig, "drainMs">,
  ) {
    this.#inFlight = inFlight;
    this.#drainMs = drainMs;
  }

  /** The drain, while the HTTP server still serves. */
  beforeApplicationShutdown(): Promise<void> {
    return this.#inFlight.close(this.#drainMs);
  }
}
