/**
 * Development only: generates the types of a client from an OpenAPI document with
 * openapi-typescript.
 */
import openapiTS, { astToString, type OpenAPI3 } from 'openapi-typescript';

/**
 * Returns TypeScript source that exports `paths`. @throws when the document is not valid OpenAPI
 */
export async function clientTypes(document: object): Promise<string> {
  return astToString(await openapiTS(document as OpenAPI3));
}
