/**
 * CPU limit of the scan process (scan-child.ts). It applies while people wait for an answer of the
 * API. `find` has no limit, only its low priority.
 */
import { createBreather, createPace } from '@berth/kit/pace';

export const pace = createPace();
/** For the main thread. */
export const breathe = createBreather(pace);
