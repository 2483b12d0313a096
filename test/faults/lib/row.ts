/** What a row of the fault table is. docs/faults.md is held equal to the rows by test/faults-docs.test.ts. */
import type { InvariantId } from '@berth/testbed/invariants';
import type { Stage, StageName } from './stage.ts';

export type Row = {
  fault: string;
  /** What must happen. */
  answer: string;
  /** Ids of docs/invariants.md that it puts to the test. */
  invariants: readonly InvariantId[];
  stage: StageName;
  /** In `npm test` too. */
  quick?: true;
  /** Requests may go unanswered while the fault lasts: what serves is itself what is hit. Everywhere else none may. */
  outage?: true;
  /** How long the fault itself is made to last. */
  lastsMs?: number;
  /** Why it cannot run here. */
  skip?: () => string | undefined;
  run: (stage: Stage) => Promise<void>;
};
