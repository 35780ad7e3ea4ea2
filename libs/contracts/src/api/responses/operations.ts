import { type ApiOperation, json } from "../operation.ts";
import { responseRequest } from "./request.ts";
import { response, responseEvents } from "./response.ts";

export const responseOperations = {
  create: {
    operationId: "createResponse",
    method: "POST",
    path: "/api/v1/responses",
    permission: "inference:create",
    summary: "Creates a response, whole or as a stream of events.",
    body: responseRequest,
    replies: { 200: { ...json(response), "text/event-stream": responseEvents } },
  },
} as const satisfies Record<string, ApiOperation>;
