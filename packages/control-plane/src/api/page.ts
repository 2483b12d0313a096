/** A list's query as the stores take it. */
import type { Page } from '../domain/page.ts';

const DEFAULT_LIMIT = 50;

export const pageOf = (query: { limit?: number; cursor?: string }): Page => ({
  limit: query.limit ?? DEFAULT_LIMIT,
  cursor: query.cursor ?? null,
});
