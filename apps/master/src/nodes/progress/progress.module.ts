import { Module } from "@nestjs/common";
import { ProgressBook } from "./progress-book.ts";

/** The progress of jobs, as heartbeats and task sessions report it to this master. */
@Module({ providers: [ProgressBook], exports: [ProgressBook] })
export class ProgressModule {}
