/** Converts the query of a list to the page that stores expect. */
import type { Page } from '../domain/platform/page.ts';

const DEFAULT_LIMIT = 50;

export const pageOf = (query: { limit?: number; cursor?: string }): Page => ({
  limit: query.limit ?? DEFAULT_LIMIT,
  cursor: query.cursor ?? null,
});
