/** A row of the fault table. test/faults-docs.test.ts compares docs/faults.md with the rows. */
import type { InvariantId } from '@berth/testbed/invariants';
import type { Stage, StageName } from './stage.ts';

export type Row = {
  fault: string;
  /** The required outcome. */
  answer: string;
  /** Ids of docs/invariants.md that the row tests. */
  invariants: readonly InvariantId[];
  stage: StageName;
  /** The row runs in `npm test` too. */
  quick?: true;
  /**
   * Requests may fail while the fault lasts, because it hits the container or the proxy that serves
   * them. In other rows none may fail.
   */
  outage?: true;
  /** Duration of the fault itself, in ms. */
  lastsMs?: number;
  /** Returns why the row cannot run here. */
  skip?: () => string | undefined;
  run: (stage: Stage) => Promise<void>;
};
