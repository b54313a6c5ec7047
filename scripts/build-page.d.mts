export declare const target: string
export declare function buildPage(): Promise<Map<string, Buffer>>
