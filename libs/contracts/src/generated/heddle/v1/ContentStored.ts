// Original file: proto/documents.proto


export interface ContentStored {
}

export interface ContentStored__Output {
}
