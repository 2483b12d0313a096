/** Development only: types for a client, generated from an OpenAPI document by openapi-typescript. */
import openapiTS, { astToString, type OpenAPI3 } from 'openapi-typescript';

/** TypeScript source that exports `paths`. Throws when the document is not valid OpenAPI. */
export async function clientTypes(document: object): Promise<string> {
  return astToString(await openapiTS(document as OpenAPI3));
}
