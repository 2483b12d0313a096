/** The layout of a page with its heading. */
import { type ReactNode, useEffect } from 'react';
import { Column, Row } from '../ui/layout.tsx';
import { Text, Title } from '../ui/text.tsx';

type PageLayoutProps = {
  title: string;
  lead?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
};
/** `title` is the h1 and the title of the tab. `lead` is one sentence about the current state. */
export function PageLayout({ title, lead, actions, children }: PageLayoutProps) {
  useEffect(() => {
    document.title = `${title} · Berth`;
  }, [title]);
  return (
    <Column gap="lg">
      <Column gap="xs">
        <Row justify="between">
          <Title>{title}</Title>
          {actions !== undefined && <Row gap="xs">{actions}</Row>}
        </Row>
        {lead !== undefined && <Text size="md">{lead}</Text>}
      </Column>
      {children}
    </Column>
  );
}
