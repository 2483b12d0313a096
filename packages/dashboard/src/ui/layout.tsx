/** Components that arrange a page. */
import {
  AppShell,
  Box,
  Burger,
  Card,
  Flex,
  Grid as MantineGrid,
  Group,
  SimpleGrid,
  Stack as MantineStack,
} from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import type { ReactNode } from 'react';

type Gap = 'xs' | 'sm' | 'md' | 'lg' | 'xl' | 0;

export const Column = ({ children, gap = 'md' }: { children: ReactNode; gap?: Gap }) => (
  <MantineStack gap={gap}>{children}</MantineStack>
);

type RowProps = {
  children: ReactNode;
  gap?: Gap;
  /** `between`: puts the first child on the left and the last child on the right. */
  justify?: 'start' | 'center' | 'between' | 'end';
  align?: 'start' | 'center' | 'end' | 'baseline';
  wrap?: boolean;
};
const FLEX = {
  start: 'flex-start',
  end: 'flex-end',
  center: 'center',
  between: 'space-between',
  baseline: 'baseline',
} as const;
export const Row = ({
  children,
  gap = 'sm',
  justify = 'start',
  align = 'center',
  wrap = true,
}: RowProps) => (
  <Group gap={gap} justify={FLEX[justify]} align={FLEX[align]} wrap={wrap ? 'wrap' : 'nowrap'}>
    {children}
  </Group>
);

/** Fills the remaining space in a Row. */
export const Grow = ({ children }: { children: ReactNode }) => (
  <Box flex="1 1 220px" miw={0}>
    {children}
  </Box>
);

type ColumnsProps = { children: ReactNode; most?: 2 | 3 | 4; align?: 'stretch' | 'end' };
/**
 * Arranges children in up to `most` columns, or one column on a phone. `end`: aligns inputs and
 * charts of a row at the bottom, even if only one has a help text.
 */
export const Columns = ({ children, most = 3, align = 'stretch' }: ColumnsProps) => (
  <SimpleGrid
    cols={{ base: 1, sm: Math.min(2, most), lg: most }}
    spacing="md"
    style={{ alignItems: align }}
  >
    {children}
  </SimpleGrid>
);

/** A wide part with a narrow part beside it, or below it on a phone. */
export const WithSide = ({ children, side }: { children: ReactNode; side: ReactNode }) => (
  <MantineGrid gap="lg">
    <MantineGrid.Col span={{ base: 12, lg: 8 }}>{children}</MantineGrid.Col>
    <MantineGrid.Col span={{ base: 12, lg: 4 }}>{side}</MantineGrid.Col>
  </MantineGrid>
);

type PanelProps = {
  children: ReactNode;
  title?: ReactNode;
  actions?: ReactNode;
  id?: string;
  level?: 2 | 3;
  flush?: boolean;
};
/** A section of a page with a heading. `flush`: without padding, for tables and logs. */
export function Panel({ children, title, actions, id, level = 2, flush = false }: PanelProps) {
  const Heading = level === 2 ? 'h2' : 'h3';
  return (
    <Card
      component="section"
      padding={flush ? 0 : 'md'}
      bg="var(--raised)"
      style={{ border: '1px solid var(--line)', overflow: flush ? 'hidden' : 'visible' }}
      {...(id === undefined ? {} : { id, 'aria-labelledby': `${id}-title` })}
    >
      {(title !== undefined || actions !== undefined) && (
        <Flex
          justify="space-between"
          align="center"
          gap="sm"
          wrap="wrap"
          mb={flush ? 0 : 'sm'}
          p={flush ? 'md' : 0}
        >
          {title !== undefined && (
            <Heading
              style={{ margin: 0, fontSize: level === 2 ? '1.1rem' : '1rem' }}
              {...(id === undefined ? {} : { id: `${id}-title` })}
            >
              {title}
            </Heading>
          )}
          {actions !== undefined && <Group gap="xs">{actions}</Group>}
        </Flex>
      )}
      {children}
    </Card>
  );
}

type FrameProps = {
  brand: ReactNode;
  nav: (close: () => void) => ReactNode;
  tools: ReactNode;
  banner: ReactNode;
  children: ReactNode;
};
/**
 * The frame of all pages: header, navigation, content. On a phone, a button opens the navigation.
 */
export function Frame({ brand, nav, tools, banner, children }: FrameProps) {
  const [open, { toggle, close }] = useDisclosure(false);
  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 216, breakpoint: 'md', collapsed: { mobile: !open } }}
      padding="md"
    >
      <AppShell.Header px="md" bg="var(--raised)">
        <Group h="100%" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger
              opened={open}
              onClick={toggle}
              hiddenFrom="md"
              size="sm"
              aria-label={open ? 'Close the navigation' : 'Open the navigation'}
              aria-expanded={open}
            />
            {brand}
          </Group>
          {tools}
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="sm" bg="var(--raised)" aria-label="Main">
        {nav(close)}
      </AppShell.Navbar>
      <AppShell.Main id="main">
        {banner}
        <Box maw={1400} mx="auto">
          {children}
        </Box>
      </AppShell.Main>
    </AppShell>
  );
}

/** A page without the frame, for example the sign-in. */
export const Centered = ({ children }: { children: ReactNode }) => (
  <Flex mih="100vh" align="center" justify="center" p="md">
    <Box w="100%" maw={420}>
      {children}
    </Box>
  </Flex>
);
