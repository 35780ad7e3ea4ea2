// Original file: proto/worker.proto


export interface ToolCall {
  'id'?: (string);
  'name'?: (string);
  'arguments'?: (string);
}

export interface ToolCall__Output {
  'id': (string);
  'name': (string);
  'arguments': (string);
}
