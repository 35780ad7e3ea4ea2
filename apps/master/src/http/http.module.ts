import { KeyVerifier } from "@heddle/auth/key-verifier";
import { EmbeddedLimits } from "@heddle/auth/limits/embedded-limits";
import type { Subject } from "@heddle/auth/limits/limit-store";
import { OwnSpend } from "@heddle/auth/limits/own-spend";
import { RateLimiter } from "@heddle/auth/rate-limiter";
import { MAX_KEYS } from "@heddle/control/apply";
import type { ApiKeyRecord } from "@heddle/control/state";
import { InferenceMetrics } from "@heddle/observability/inference-metrics";
import { Inject, Module, type Type } from "@nestjs/common";
import { APP_FILTER, HttpAdapterHost, ModulesContainer } from "@nestjs/core";
import type { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance } from "fastify";
import { MASTER_CONFIG } from "../config/config.module.ts";
import { PEPPER } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { MetricsModule } from "../metrics/metrics.module.ts";
import { UsageBook } from "../usage/usage-book.ts";
import { AccessCheck, type OnLimited } from "./access.ts";
import { ErrorFilter } from "./error-filter.ts";
import { guardRoutes, type HttpSettings } from "./fastify-server.ts";
import { IdempotentChanges } from "./idempotent-changes.ts";
import { InProcessCalls } from "./in-process-calls.ts";
import { LastUsed } from "./last-used.ts";
import { CallLimiter } from "./limits/call-limiter.ts";
import { LimitDivision } from "./limits/limit-division.ts";
import { listRoutes, ROUTES } from "./route-table.ts";

/** What every route has: access by keys, their limits, repeated changes, errors. */
@Module({
  imports: [MetricsModule],
  providers: [
    IdempotentChanges,
    InProcessCalls,
    LastUsed,
    { provide: CallLimiter, inject: [CONTROL_PLANE, UsageBook], useFactory: openLimiter },
    {
      provide: AccessCheck,
      inject: [CONTROL_PLANE, PEPPER, LastUsed, CallLimiter, InferenceMetrics, InProcessCalls],
      useFactory: openAccess,
    },
    { provide: ROUTES, inject: [ModulesContainer], useFactory: routesOf },
    { provide: APP_FILTER, useClass: ErrorFilter },
  ],
  exports: [IdempotentChanges, InProcessCalls, CallLimiter, LastUsed, ROUTES],
})
export class HttpModule {
  /** Guards the routes of all modules: they are added after all modules were made. */
  constructor(
    @Inject(HttpAdapterHost) { httpAdapter }: HttpAdapterHost<FastifyAdapter>,
    @Inject(AccessCheck) access: AccessCheck,
    @Inject(MASTER_CONFIG) settings: HttpSettings,
  ) {
    guardRoutes(httpAdapter.getInstance<FastifyInstance>(), access, settings);
  }
}

/** Keys, projects and models whose limits are counted at a time. */
const MAX_SUBJECTS = MAX_KEYS + 20_000;

function openLimiter({ group, state }: ControlPlane, book: UsageBook): CallLimiter {
  const now = () => performance.now();
  const limiter = new RateLimiter({ now, maxKeys: MAX_SUBJECTS });
  const division = new LimitDivision({ now, group: group && (() => group.status()) });
  const history = book.costOf.bind(book);
  const spend = new OwnSpend({ history, wallNow: Date.now, maxSubjects: MAX_SUBJECTS });
  const share = ({ limits }: Subject) => division.shareOf(limits);
  const store = new EmbeddedLimits({ limiter, spend, share });
  return new CallLimiter({ store, division, state: () => state });
}

function openAccess(
  control: ControlPlane,
  pepper: Uint8Array,
  lastUsed: LastUsed,
  limits: CallLimiter,
  metrics: InferenceMetrics,
  inProcess: InProcessCalls,
): AccessCheck {
  const verifier = new KeyVerifier<ApiKeyRecord>({
    lookup: (id) => control.state.keys.get(id),
    pepper,
    now: Date.now,
  });
  const onLimited: OnLimited = (permission, { code }) => {
    if (permission === "inference:create") metrics.failed("", code);
  };
  return new AccessCheck(verifier, lastUsed, limits, onLimited, inProcess);
}

function routesOf(modules: ModulesContainer) {
  const controllers = [...modules.values()].flatMap((each) => [...each.controllers.values()]);
  return listRoutes(controllers.map(({ metatype }) => metatype as Type));
}
