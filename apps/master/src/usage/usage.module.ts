import type { Logger } from "@heddle/observability/logger";
import { Global, Module } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { UsageBook } from "./usage-book.ts";
import { UsageFiles } from "./usage-files.ts";
import { UsageLedger } from "./usage-ledger.ts";

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
  ],
  exports: [UsageBook, UsageLedger],
})
export class UsageModule {}
