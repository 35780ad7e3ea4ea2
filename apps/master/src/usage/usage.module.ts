import type { Logger } from "@heddle/observability/logger";
import { Global, Module } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { UsageBook } from "./usage-book.ts";
import { UsageFiles } from "./usage-files.ts";
import { UsageLedger } from "./usage-ledger.ts";
import { UsageReplication } from "./usage-replication.ts";

/** What calls have used: rows on the disk, and their sums in memory. */
@Global()
@Module({
  providers: [
    UsageBook,
    {
      provide: UsageLedger,
      inject: [MASTER_CONFIG, UsageBook, LOGGER],
      useFactory: ({ dataDirectory }: MasterConfig, book: UsageBook, logger: Logger) =>
        new UsageLedger(new UsageFiles(dataDirectory), book, logger),
    },
    {
      provide: UsageReplication,
      inject: [CONTROL_PLANE, UsageBook, LOGGER],
      useFactory: (control: ControlPlane, book: UsageBook, logger: Logger) =>
        new UsageReplication(control, book, logger),
    },
  ],
  exports: [UsageBook, UsageLedger, UsageReplication],
})
export class UsageModule {}
