/**
 * CPU limit of the scan process (scan-child.ts). It applies while people wait for an answer of the
 * API. `find` has no CPU limit, only a low priority.
 */
import { createBreather, createPace } from '@berth/kit/pace';

export const pace = createPace();
/** Yields to other work; for the main thread. */
export const breathe = createBreather(pace);
