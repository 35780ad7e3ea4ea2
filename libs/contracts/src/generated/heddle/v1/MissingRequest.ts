// Original file: proto/documents.proto


export interface MissingRequest {
}

export interface MissingRequest__Output {
}
