/** Shows problems of the whole page: the control plane does not answer, or it was upgraded. */
import { useEffect, useState } from 'react';
import { useConnection } from '../api/connection.ts';
import { durationText, exactTime } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Note } from '../ui/feedback.tsx';
import { Row } from '../ui/layout.tsx';
import { Text } from '../ui/text.tsx';

/**
 * Delay in ms before the banner appears. A restart of the control plane takes about this long and
 * needs no banner.
 */
const QUIET_MS = 2_000;

export function Banner() {
  const { state, since, seenAt, outdated } = useConnection();
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (state === 'ok') return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [state]);
  const age = now - since;
  return (
    <>
      {state === 'away' && age >= QUIET_MS && (
        <div style={{ marginBottom: 16 }} data-banner="away">
          <Note tone="warn" live title="The control plane does not answer">
            <Text>
              This page shows what was known at {exactTime(new Date(seenAt).toISOString())}. Running
              projects are not affected.
            </Text>
            <Text tone="quiet" size="xs">
              <span aria-hidden>No answer for {durationText(age)}. </span>The page tries again by
              itself.
            </Text>
          </Note>
        </div>
      )}
      {outdated && (
        <div style={{ marginBottom: 16 }} data-banner="outdated">
          <Note title="Berth was upgraded" live>
            <Row justify="between">
              <Text>
                This tab shows the page of the version before. Reload it when you have saved what
                you type.
              </Text>
              <Button size="xs" onClick={() => location.reload()}>
                Reload
              </Button>
            </Row>
          </Note>
        </div>
      )}
    </>
  );
}
