import { InferenceMetrics } from "@heddle/observability/inference-metrics";
import { Module } from "@nestjs/common";
import { HttpModule } from "../http/http.module.ts";
import { MetricsModule } from "../metrics/metrics.module.ts";
import { ModelsModule } from "../models/models.module.ts";
import { UsageLedger } from "../usage/usage-ledger.ts";
import { Accounting } from "./accounting.ts";
import { BatchCalls } from "./batches/batch-calls.ts";
import { BatchPace } from "./batches/batch-pace.ts";
import { BatchRunner } from "./batches/batch-runner.ts";
import { BatchStore } from "./batches/batch-store.ts";
import { BatchesController } from "./batches/batches.controller.ts";
import { CacheSalts } from "./cache-salts.ts";
import { ChatController } from "./chat/chat.controller.ts";
import { ChatCompletions } from "./chat/chat-completions.ts";
import { AsyncCompletions } from "./completions/async-completions.ts";
import { CompletionStore } from "./completions/completion-store.ts";
import { CompletionsController } from "./completions/completions.controller.ts";
import { TextCompletions } from "./completions/text-completions.ts";
import { EmbeddingCalls } from "./embeddings/embedding-calls.ts";
import { EmbeddingsController } from "./embeddings/embeddings.controller.ts";
import { FileStore } from "./files/file-store.ts";
import { FileUploads } from "./files/file-uploads.ts";
import { FilesController } from "./files/files.controller.ts";
import { InferenceCalls } from "./inference-calls.ts";
import { MessageCalls } from "./messages/message-calls.ts";
import { MessagesController } from "./messages/messages.controller.ts";
import { JudgeModeration } from "./moderations/judge-moderation.ts";
import { LocalModeration } from "./moderations/local-moderation.ts";
import { ModerationsController } from "./moderations/moderations.controller.ts";
import { RerankController } from "./rerank/rerank.controller.ts";
import { RerankCalls } from "./rerank/rerank-calls.ts";
import { BackgroundResponses } from "./responses/background-responses.ts";
import { ConversationStore } from "./responses/conversation-store.ts";
import { ConversationsController } from "./responses/conversations.controller.ts";
import { ResponseCalls } from "./responses/response-calls.ts";
import { ResponseContext } from "./responses/response-context.ts";
import { ResponseGeneration } from "./responses/response-generation.ts";
import { ResponseRelayController } from "./responses/response-relay.controller.ts";
import { ResponseRelay } from "./responses/response-relay.ts";
import { ResponseStore } from "./responses/response-store.ts";
import { ResponseStreams } from "./responses/response-streams.ts";
import { ResponseTokens } from "./responses/response-tokens.ts";
import { ResponsesController } from "./responses/responses.controller.ts";
import { TokenCalls } from "./tokens/token-calls.ts";
import { TokensController } from "./tokens/tokens.controller.ts";

/** The inference API: calls from their body to the last byte of the answer. */
@Module({
  imports: [HttpModule, MetricsModule, ModelsModule],
  controllers: [
    BatchesController,
    ChatController,
    ConversationsController,
    CompletionsController,
    EmbeddingsController,
    FilesController,
    MessagesController,
    ModerationsController,
    RerankController,
    ResponseRelayController,
    ResponsesController,
    TokensController,
  ],
  providers: [
    AsyncCompletions,
    CompletionStore,
    BatchCalls,
    BatchPace,
    BatchRunner,
    BatchStore,
    CacheSalts,
    ChatCompletions,
    EmbeddingCalls,
    FileStore,
    FileUploads,
    InferenceCalls,
    JudgeModeration,
    LocalModeration,
    MessageCalls,
    RerankCalls,
    BackgroundResponses,
    ConversationStore,
    ResponseCalls,
    ResponseContext,
    ResponseGeneration,
    ResponseRelay,
    ResponseStore,
    ResponseStreams,
    ResponseTokens,
    TextCompletions,
    TokenCalls,
    {
      provide: Accounting,
      inject: [InferenceMetrics, UsageLedger],
      useFactory: (metrics: InferenceMetrics, ledger: UsageLedger) =>
        new Accounting(metrics, (row) => ledger.record(row)),
    },
  ],
})
export class InferenceModule {}
