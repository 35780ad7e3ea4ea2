import { Module } from "@nestjs/common";
import { JobLoops } from "./job-loops.ts";
import { JobSpans } from "./job-spans.ts";
import { LeaderLoops } from "./leader-loops.ts";
import { LostNodeLoop } from "./lost-node-loop.ts";
import { SchedulingModule } from "./scheduling/scheduling.module.ts";
import { SecretLoop } from "./secret-loop.ts";

/** The leader's loops for jobs that need no connection to a worker. */
@Module({
  imports: [SchedulingModule],
  providers: [LeaderLoops, JobLoops, JobSpans, LostNodeLoop, SecretLoop],
})
export class OrchestrationModule {}
